"""Bugs in cuts, groups, windows, lengths and recipes, and in what a loader deals of them.

The golden plans would notice most of them too; here it is the laws and promises that must.
"""

from tests.campaigns.planting import Bug

GOLDEN = "tests/batches/test_golden_plans.py"
LENGTHS = "tests/batches/test_lengths.py"
PADDING = "tests/loading/test_pad_collate.py"
STATES = "tests/loading/test_batch_states.py"
JOBS = "tests/campaigns/test_random_ledgers.py::test_the_first_of_the_random_jobs_lose_and_repeat_nothing"
BY_VALUES = "tests/loading/test_batches_by_values.py"
PACKS = "tests/batches/test_packs.py"

BUGS = [
    Bug(
        "steps that are dealt at once forget that a worker reads every other one",
        "Delivery.dealt_in",
        "covered * steps.step",
        "covered",
        f"{BY_VALUES}::test_dealing_several_steps_at_once_equals_dealing_each",
    ),
    Bug(
        "an item goes where it leaves the most space",
        "_OpenRuns.take",
        "at = bisect_left(self._spaces, size)",
        "at = bisect_left(self._spaces, size)\nat = len(self._spaces) - 1 if at < len(self._spaces) else at",
        PACKS,
    ),
    Bug(
        "the end of a long document begins where the document does",
        "PackPlan._ends",
        "packed.full[value] * packed.fit.seq_len",
        "0 * packed.full[value]",
        PACKS,
    ),
    Bug(
        "what follows on the said length of a document is lost",
        "cut",
        "None if last else begin + length",
        "begin + length",
        "tests/loading/test_parts_of_documents.py::test_no_token_is_lost_if_wrong_lengths_stay_within_the_limit",
    ),
    Bug(
        "a batch goes on behind its bucket",
        "Cuts.edges",
        "np.minimum(begin + size, self._ends[bucket])",
        "begin + size",
        PACKS,
    ),
    Bug("what was dropped is found", "Cuts.batch_of", "places < self._ends[bucket]", "places >= 0", PACKS),
    Bug(
        "the last batches are always lost",
        "Groups.__init__",
        "divmod(count, abreast)",
        "(count // abreast, 0)",
        PACKS,
    ),
    Bug(
        "lengths are padded after they are counted",
        "Budget.costs",
        "self.padded(lengths)",
        "lengths",
        GOLDEN,
    ),
    Bug(
        "what is known of a state is not counted from",
        "WindowPlan.__post_init__",
        "{self._first: before}",
        "{self._first: 0}",
        PACKS,
    ),
    Bug("a file that was written again is believed", "_stamp", "status.st_ctime_ns", "0", LENGTHS),
    Bug("no batch is checked against its limit", "_require_padded", "measure.cap is None", "True", PADDING),
    Bug(
        "each rank gets the first part of what was split",
        "Reading._read",
        "parts[self.delivery.slot(rank)]",
        "parts[0]",
        BY_VALUES,
    ),
    Bug(
        "tokens are those of this rank",
        "Reading.tokens",
        "range(self.delivery.num_shards)",
        "[self.shard]",
        JOBS,
    ),
    Bug(
        "a state of other lengths is taken",
        "BatchUnit.restored",
        '("recipe", "lengths")',
        '("recipe",)',
        STATES,
    ),
]
