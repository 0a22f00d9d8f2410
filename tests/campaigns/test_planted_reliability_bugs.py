"""Whether the tests of single failures would notice: bugs for rows of docs/reliability.md.

Run it with `pytest -m campaign tests/campaigns/test_planted_reliability_bugs.py`. Other bugs that the
page names are in the files beside this one.
"""

from __future__ import annotations

import pytest

from tests.campaigns.planting import Bug, notices
from tests.campaigns.test_planted_loader_bugs import LOADER

pytestmark = pytest.mark.campaign

CACHE = "tests/storage/remote/test_cache"
THREADS = "tests/storage/files/test_threads.py"
SENDING = "tests/loading/test_sending.py"
SIGNALS = "tests/loading/test_signals_and_forks.py"

BUGS = [
    Bug(
        "a state is loaded in the middle of an iteration",
        "Cursor.require_closed",
        "self.at.is_open",
        "False",
        "tests/loading/test_loader_states.py::test_a_state_cannot_be_loaded_while_an_iteration_is_under_way",
    ),
    Bug(
        "a break is answered by the other choice",
        "Cursor.upcoming",
        "self._resumes",
        "not self._resumes",
        f"{LOADER}::test_after_an_early_break_the_epoch_begins_anew_or_goes_on",
    ),
    Bug(
        "workers hand out batches as they come",
        "WorkerProcesses.__init__",
        "{**options, **ours}",
        "{**options, **ours, 'in_order': False}",
        "tests/loading/test_worker_counts.py",
    ),
    Bug(
        "only the number of samples makes a dataset",
        "describe_dataset",
        "[str(layout.has_files), _portable(layout.sizes), *(layout.names or ())]",
        "[str(layout.has_files), str(len(layout))]",
        "tests/loading/test_changed_datasets.py",
    ),
    Bug(
        "the end of an epoch is the beginning of the next",
        "Cursor.set_epoch",
        "at.is_loaded and epoch == at.ended",
        "False",
        "tests/loading/test_epoch_borders.py",
    ),
    Bug(
        "an iterable draws from the process",
        "lent_randomness",
        "stack.enter_context(generator.seeded(word))",
        "pass",
        "tests/loading/test_given_ids.py",
    ),
    Bug(
        "ids of an iterable are not compared",
        "require_same_ids",
        'saved["digest"] != current["digest"]',
        "False",
        "tests/loading/test_given_ids.py",
    ),
    Bug(
        "a mixture starts over",
        "CurrentRun.restore",
        "cursor.load(state.place, past)",
        "cursor.go_to(state.epoch)",
        "tests/samplers/test_mixtures.py::test_a_mixture_resumes_on_other_ranks_after_a_source_has_ended",
    ),
    Bug(
        "padded ranks are uneven",
        "Delivery._shared",
        "(least + (larger > 0), 0)",
        "(least, larger)",
        "tests/loading/test_uneven_ranks.py",
    ),
    Bug(
        "the first pad is taken for a sample",
        "Reading.pads",
        "self.positions(step) >= self.units.num_draws",
        "self.positions(step) > self.units.num_draws",
        "tests/loading/test_uneven_ranks.py",
    ),
    Bug(
        "nobody watches over the workers",
        "WorkerProcesses.open",
        "start_thread(threading.Thread(target=_watch, args=watched, name='samplerkit-watch', daemon=True))",
        "pass",
        "tests/loading/test_dead_workers.py",
    ),
    Bug(
        "workers that the loader ended are named",
        "WorkerProcesses._dead_workers",
        "{pid: codes[pid] for pid in self._died}",
        "codes",
        "tests/loading/test_dead_workers.py::test_only_the_worker_that_died_first_is_named_with_its_own_reason",
    ),
    Bug(
        "a batch is first pickled by the queue of a worker",
        "SendingMaker._sent",
        "is_plain(made.batch)",
        "True",
        f"{SENDING}::test_what_cannot_be_read_and_what_cannot_be_sent_are_skipped_together",
    ),
    Bug(
        "samples are skipped that can be pickled",
        "_unsendable",
        "zip(present, map(sending_error, samples.batch), strict=True)",
        "((place, 'x') for place in present)",
        f"{SENDING}::test_samples_that_cannot_be_pickled_are_skipped_and_the_steps_stay",
    ),
    Bug(
        "an exception is sent whose class cannot be pickled",
        "sendable_errors",
        "not sending_error(type(error))",
        "True",
        f"{SENDING}::test_an_exception_whose_class_cannot_be_pickled_hangs_nothing",
    ),
    Bug(
        "a batch is unpickled when it arrives",
        "PickledBatch.of",
        "return PickledBatch(content, bytes(ForkingPickler.dumps(storages)), where)",
        "return batch",
        f"{SENDING}::test_a_batch_that_cannot_be_unpickled_is_an_error_at_its_place_that_names_its_ids",
    ),
    Bug(
        "workers do not look after their parent",
        "end_with_parent",
        "parent is None",
        "parent is not None",
        f"{SIGNALS}::test_the_worker_of_a_killed_rank_removes_the_folder_of_that_rank_and_not_its_launchers",
    ),
    Bug(
        "nobody ends the workers",
        "WorkerProcesses.close",
        "end_together([self])",
        "pass",
        "tests/loading/test_loader_workers.py::test_closing_and_breaking_end_the_workers",
    ),
    Bug(
        "a slow sample is waited for",
        "LAST_BATCH_SECONDS",
        "1.5",
        "4",
        "tests/loading/test_loader_workers.py::test_a_break_waits_no_longer_than_two_seconds_for_a_sample_that_hangs",
    ),
    Bug(
        "a signal that ends the loop takes a batch back",
        "Loader.iterate_on",
        "iteration.taken = step + 1",
        "iteration.taken = step",
        "tests/loading/test_endings.py",
    ),
    Bug(
        "workers that do not hear are waited for at the exit",
        "WorkerProcesses.open",
        "end_at_exit(self)",
        "None",
        f"{SIGNALS}::test_a_job_ends_though_its_workers_are_in_the_middle_of_a_call_to_c",
    ),
    Bug(
        "a lock that a signal left behind is waited for",
        "WorkerProcesses.stop",
        "self._locks_are_free()",
        "True",
        f"{SIGNALS}::test_a_signal_handler_that_raises_while_torch_holds_its_lock_hangs_nothing",
    ),
    Bug(
        "ids travel in 32 bits",
        "EpochUnits._repeated",
        "as_array(draws) % max(1, self.num_draws)",
        "(as_array(draws) % max(1, self.num_draws)).astype(np.int32).astype(np.int64)",
        "tests/loading/test_huge_datasets.py",
    ),
    Bug(
        "a download has the name of the whole file",
        "Entry.part",
        'f"samplerkit-{self.key}.part"',
        'f"samplerkit-{self.key}.file"',
        "tests/storage/remote/test_damaged_copies.py::test_a_copy_is_on_the_disk_before_it_has_its_name",
    ),
    Bug(
        "a copy is believed by its size",
        "is_intact",
        "crc != record.crc",
        "crc is None",
        "tests/storage/remote/test_damaged_copies.py",
    ),
    Bug(
        "a copy has its name before it is on the disk",
        "PartFile.complete",
        "os.fsync(self._descriptor)",
        "pass",
        "tests/storage/remote/test_damaged_copies.py",
    ),
    Bug(
        "a file gets its name while others count",
        "DiskSpace.name",
        "held(self.folder / FOLDER_LOCK, self.stop)",
        "open(os.devnull)",
        "tests/storage/remote/test_damaged_copies.py",
    ),
    Bug(
        "unpacked copies are kept beside the cache",
        "unpack",
        "DiskCache.of(cache.options, Stop())",
        "DiskCache.of(RemoteOptions(cache=cache.folder), Stop())",
        "tests/storage/tar/test_unpacked.py",
    ),
    Bug(
        "an archive may unpack to anything",
        "inflated",
        "unpacked > limit",
        "limit < 0",
        "tests/storage/tar/test_unpacked.py",
    ),
    Bug(
        "a redirect is read to its end",
        "_is_finished",
        "response.length is not None and response.length <= _SHORT_BODY",
        "response.length != 0",
        "tests/storage/remote/test_connections.py::test_the_body_of_a_redirect_is_not_read",
    ),
    Bug(
        "several processes may download one file",
        "locked",
        "fcntl.LOCK_EX if is_exclusive else fcntl.LOCK_SH",
        "fcntl.LOCK_SH",
        f"{CACHE}_processes.py::test_four_processes_that_race_download_once",
    ),
    Bug(
        "files in use are evicted",
        "_evict",
        "locked(entry.lock, is_exclusive=True, may_make=False)",
        "locked(entry.lock, is_exclusive=False, may_make=False)",
        f"{CACHE}_processes.py::test_a_file_in_use_is_never_evicted_by_whichever_process",
    ),
    Bug(
        "all versions of a URL share a place",
        "entry_of",
        "f\"{version.size} {version.tag} {digest or ''}\"",
        "f\"{version.size} {digest or ''}\"",
        f"{CACHE}.py::test_a_new_version_is_another_file_and_the_old_one_goes_first",
    ),
    Bug(
        "a part of another version passes",
        "Http._body",
        "check_version(version, held.size, headers)",
        "pass",
        "tests/storage/remote/test_http.py",
    ),
    Bug(
        "a read that comes short passes",
        "Reader._exactly",
        "raise self._short(shard, start, length, have)",
        "pass",
        "tests/storage/tar/test_errors.py::test_an_archive_that_became_shorter",
    ),
    Bug(
        "one sample too many counts as there",
        "MetIndexes.present",
        "rows >= begin",
        "rows > begin",
        "tests/storage/tar/test_missing_samples.py::test_the_good_samples_are_read_once_and_the_steps_stay",
    ),
    Bug(
        "an index is believed",
        "read_index",
        "check_numbers(str(path), meta, arrays)",
        "pass",
        "tests/storage/tar/test_forged_files.py::test_an_index_that_says_what_none_can_say_is_named",
    ),
    Bug(
        "files that a thread uses go",
        "CacheEntries.furthest",
        "file not in kept",
        "True",
        f"{THREADS}::test_threads_that_share_a_dataset_hold_no_more_files_than_they_may",
    ),
    Bug(
        "threads that wait for room are not woken",
        "ReadAheadCache.using",
        "self._leave_line()",
        "pass",
        f"{THREADS}::test_the_end_of_a_use_lets_who_waits_for_room_look_again",
    ),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_tests_of_its_row_notice_a_planted_bug(bug):
    assert notices(bug)
