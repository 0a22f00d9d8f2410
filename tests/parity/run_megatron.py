"""Builds and reads datasets by Megatron: one JSON case a line of stdin, `RESULT <JSON>` a line of stdout.

It runs where megatron-core is, and imports nothing of ours. A case: `prefixes`, `weights` or null, `sizes`
and `split` as Megatron takes them, `seq_len`, `seed`, `extra`, `keep_partial`, `surplus`, `cache` (a
folder). The result has, by part, null or the number of samples and a digest of all their tokens. An error
is written as its class.
"""

import hashlib
import json
import logging
import os
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch.distributed
from megatron.core.datasets.blended_dataset import BlendedDataset
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

PARTS = ("train", "valid", "test")


def tokens_of(dataset: Any, number: int) -> Any:
    """The tokens of a sample, the extra one and padding included, as the dataset queries them."""
    if isinstance(dataset, BlendedDataset):
        source = dataset.datasets[dataset.dataset_index[number]]
        return tokens_of(source, dataset.dataset_sample_index[number])
    return dataset._query_document_sample_shuffle_indices(number)[0]


def result(case: dict[str, Any]) -> dict[str, Any]:
    """Builds one case, and reads it."""
    for prefix, documents in case.get("write", {}).items():
        builder = IndexedDatasetBuilder(prefix + ".bin", dtype=np.dtype(case["dtype"]).type)
        for document in documents:
            builder.add_document(document, [len(document)])
        builder.finalize(prefix + ".idx")
    config = GPTDatasetConfig(
        random_seed=case["seed"],
        sequence_length=case["seq_len"],
        blend=(case["prefixes"], case["weights"]),
        split=case["split"],
        path_to_cache=case["cache"],
        tokenizer=SimpleNamespace(vocab_size=256, eod=0, pad=-1, unique_identifiers={}),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
        add_extra_token_to_sequence=case["extra"],
        drop_last_partial_validation_sequence=not case["keep_partial"],
        mid_level_dataset_surplus=case["surplus"],
    )
    try:
        built = BlendedMegatronDatasetBuilder(GPTDataset, case["sizes"], lambda: True, config).build()
    except Exception as error:
        return {"error": type(error).__name__}
    parts: dict[str, Any] = dict.fromkeys(PARTS)
    for part, dataset in zip(PARTS, built, strict=True):
        if dataset is None:
            continue
        digest = hashlib.sha256()
        for number in range(len(dataset)):
            digest.update(tokens_of(dataset, number).astype("<i8").tobytes())
        parts[part] = {"samples": len(dataset), "sha256": digest.hexdigest()}
    return parts


def main() -> None:
    """Writes the results of all cases."""
    logging.disable(logging.CRITICAL)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    for line in sys.stdin:
        print("RESULT " + json.dumps(result(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
