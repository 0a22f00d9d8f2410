"""Whether the tests of single failures would notice: bugs for rows of docs/reliability.md.

Run it with `pytest -m campaign tests/campaigns/test_planted_reliability_bugs.py`. The other bugs that the
page names are in `test_planted_bugs.py`.
"""

from __future__ import annotations

import pytest

from tests.campaigns.test_planted_bugs import LOADER, Bug, notices

pytestmark = pytest.mark.campaign

CACHE = "tests/storage/remote/test_cache"
THREADS = "tests/storage/files/test_threads.py"
SIGNALS = "tests/loading/test_signals_and_forks.py"

BUGS = [
    Bug(
        "a state is loaded in the middle of an iteration",
        "loading/loader.py",
        "        if self._progress.iteration is not None:\n            raise",
        "        if self._progress.iteration is False:\n            raise",
        "tests/loading/test_loader_states.py::test_a_state_cannot_be_loaded_while_an_iteration_is_under_way",
    ),
    Bug(
        "a break is answered by the other choice",
        "loading/progress.py",
        "self.position if goes_on else 0",
        "0 if goes_on else self.position",
        f"{LOADER}::test_after_an_early_break_the_epoch_begins_anew_or_goes_on",
    ),
    Bug(
        "workers hand out batches as they come",
        "loading/source.py",
        "            num_workers=self._num_workers,\n            worker_init_fn",
        "            num_workers=self._num_workers,\n            in_order=False,\n            worker_init_fn",
        "tests/loading/test_worker_counts.py",
    ),
    Bug(
        "only the number of samples makes a dataset",
        "loading/identity.py",
        "_portable(layout.sizes), *(layout.names or ())",
        "str(len(layout))",
        "tests/loading/test_changed_datasets.py",
    ),
    Bug(
        "a mixture starts over",
        "loading/loader.py",
        "self._progress.go_to(saved.epoch, saved.position)",
        "self._progress.go_to(saved.epoch)",
        "tests/samplers/test_mixture.py::test_a_mixture_goes_on_with_other_ranks_after_a_source_has_ended",
    ),
    Bug(
        "padded ranks are uneven",
        "loading/delivery.py",
        "return -(-left // self.num_shards)\n",
        "return left // self.num_shards + (self._seat(shard) < left % self.num_shards)\n",
        "tests/loading/test_uneven_ranks.py",
    ),
    Bug(
        "the first pad is taken for a sample",
        "loading/reading.py",
        "return self.positions(step) >= len(self.order)",
        "return self.positions(step) > len(self.order)",
        "tests/loading/test_uneven_ranks.py",
    ),
    Bug(
        "nobody watches over the workers",
        "loading/watch.py",
        "            watch.start()\n",
        "",
        "tests/loading/test_dead_workers.py",
    ),
    Bug(
        "workers do not look after their parent",
        "loading/worker.py",
        "    if parent is None:\n",
        "    if parent is not None:\n",
        "tests/loading/test_signals_and_forks.py",
    ),
    Bug(
        "nobody ends the workers",
        "loading/watch.py",
        "                self._batches._shutdown_workers()\n",
        "                pass\n",
        "tests/loading/test_loader_workers.py::test_closing_and_breaking_end_the_workers",
    ),
    Bug(
        "a slow sample is waited for",
        "loading/watch.py",
        "_LAST_BATCH_SECONDS = 1.5",
        "_LAST_BATCH_SECONDS = 4",
        "tests/loading/test_loader_workers.py::test_a_break_does_not_wait_for_a_slow_sample",
    ),
    Bug(
        "a signal that ends the loop takes a batch back",
        "loading/loader.py",
        "progress.delivered = step + 1",
        "progress.delivered = step",
        "tests/loading/test_endings.py",
    ),
    Bug(
        "a lock that a signal left behind is waited for",
        "loading/watch.py",
        "if self._was_interrupted and not self._locks_are_free():",
        "if False:",
        f"{SIGNALS}::test_a_signal_handler_that_raises_while_torch_holds_its_lock_hangs_nothing",
    ),
    Bug(
        "ids travel in 32 bits",
        "loading/reading.py",
        "np.concatenate(positions) % len(self.order))",
        "np.concatenate(positions) % len(self.order)).astype(np.int32).astype(np.int64)",
        "tests/loading/test_huge_datasets.py",
    ),
    Bug(
        "a download has the name of the whole file",
        "storage/remote/entry.py",
        'f"samplerkit-{self.key}.part"',
        'f"samplerkit-{self.key}.file"',
        "tests/storage/remote/test_damaged_copies.py::test_a_copy_is_on_the_disk_before_it_has_its_name",
    ),
    Bug(
        "a copy is believed by its size",
        "storage/remote/record.py",
        "    if crc != record.crc:\n",
        "    if crc is None:\n",
        "tests/storage/remote/test_damaged_copies.py",
    ),
    Bug(
        "a copy has its name before it is on the disk",
        "storage/remote/part_file.py",
        "            os.fsync(self._descriptor)\n",
        "",
        "tests/storage/remote/test_damaged_copies.py",
    ),
    Bug(
        "a file gets its name while others count",
        "storage/remote/room.py",
        "        with held(self.folder / FOLDER_LOCK, self.stop):\n            entry.part.rename",
        "        if entry.part.exists():\n            entry.part.rename",
        "tests/storage/remote/test_damaged_copies.py",
    ),
    Bug(
        "unpacked copies are kept beside the cache",
        "storage/tar/archive.py",
        "DiskCache.of(cache.options, Stop())",
        "DiskCache(cache.folder, None, 1.0, Stop())",
        "tests/storage/tar/test_unpacked.py",
    ),
    Bug(
        "an archive may unpack to anything",
        "storage/tar/inflate.py",
        "            if unpacked > limit:",
        "            if limit < 0:",
        "tests/storage/tar/test_unpacked.py",
    ),
    Bug(
        "a redirect is read to its end",
        "storage/remote/session.py",
        "                _take_short_body(response)\n",
        "                _ = response.content\n",
        "tests/storage/remote/test_connections.py::test_the_body_of_a_redirect_is_not_read",
    ),
    Bug(
        "several processes may download one file",
        "storage/locks.py",
        "(fcntl.LOCK_EX if is_exclusive else fcntl.LOCK_SH)",
        "fcntl.LOCK_SH",
        f"{CACHE}_processes.py::test_four_processes_that_race_download_once",
    ),
    Bug(
        "files in use are evicted",
        "storage/remote/room.py",
        "locked(entry.lock, is_exclusive=True, may_make=False)",
        "locked(entry.lock, is_exclusive=False, may_make=False)",
        f"{CACHE}_processes.py::test_a_file_in_use_is_never_evicted_by_whichever_process",
    ),
    Bug(
        "all versions of a URL share a place",
        "storage/remote/entry.py",
        "{version.size} {version.tag} {digest or ''}",
        "{version.size} {digest or ''}",
        f"{CACHE}.py::test_a_new_version_is_another_file_and_the_old_one_goes_first",
    ),
    Bug(
        "a part of another version passes",
        "storage/remote/http.py",
        "            rules.check_version(version, held.size, headers)\n",
        "",
        "tests/storage/remote/test_http.py",
    ),
    Bug(
        "a read that comes short passes",
        "storage/tar/reader.py",
        "        if have < length:\n",
        "        if have < 0:\n",
        "tests/storage/tar/test_flaws.py::test_a_file_that_shrinks_while_it_is_read_is_an_error",
    ),
    Bug(
        "one sample too many counts as there",
        "storage/tar/met_indexes.py",
        "row >= missing[0] else split.get(row)",
        "row > missing[0] else split.get(row)",
        "tests/storage/tar/test_missing_samples.py::test_the_good_samples_are_read_once_and_the_steps_stay",
    ),
    Bug(
        "an index is believed",
        "storage/tar/index.py",
        "        check_numbers(str(path), archive, meta, arrays)\n",
        "        pass\n",
        "tests/storage/tar/test_forged_files.py::test_an_index_that_says_what_none_can_say_is_named",
    ),
    Bug(
        "files that a thread uses go",
        "storage/files/shelf.py",
        " if file not in kept)",
        ")",
        f"{THREADS}::test_threads_that_share_a_dataset_hold_no_more_files_than_they_may",
    ),
    Bug(
        "threads that wait for room are told nothing",
        "storage/files/cache.py",
        "                self._keep_within_limits()\n                self._leave_line()\n",
        "                self._keep_within_limits()\n",
        f"{THREADS}::test_the_end_of_a_use_lets_who_waits_for_room_look_again",
    ),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_tests_of_its_row_notice_a_planted_bug(tmp_path, bug):
    assert notices(tmp_path, bug)
