"""How each trainer loads potable's shards: one function a trainer, with the trainer's own code.

Each yields (ids, labels) of one sample after the other; labels are -100 where not trained on. `folder`
is the output folder of `potable prep` with the `[output] format` that the function names.
"""

import glob
import types


def parquet(folder):
    """The reference: `format = "parquet"`, read with pyarrow."""
    import pyarrow.parquet as pq

    for path in sorted(glob.glob(f"{folder}/shards/**/*.parquet", recursive=True)):
        for row in pq.read_table(path).to_pylist():
            start = 0
            for length in row["seq_lengths"]:
                end = start + length
                yield row["input_ids"][start:end], row["labels"][start:end]
                start = end


def trl(folder):
    """`format = "parquet"`: pre-packed rows through TRL's own collator."""
    from datasets import load_dataset
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    data = load_dataset("parquet", data_files=f"{folder}/shards/**/*.parquet", split="train")
    collate = DataCollatorForLanguageModeling(pad_token_id=151643, padding_free=True)
    for row in data.remove_columns("sample_ids"):
        batch = collate([row])
        ids, labels = batch["input_ids"][0].tolist(), batch["labels"][0].tolist()
        positions = batch["position_ids"][0].tolist()
        starts = [at for at, position in enumerate(positions) if position == 0] + [len(ids)]
        for start, end in zip(starts, starts[1:]):
            yield ids[start:end], labels[start:end]


def axolotl(folder):
    """`format = "parquet-unpacked"`: axolotl takes rows with these columns as tokenised. Eight rows at a time go
    through what `sample_packing: true` does with them: positions of each, and the collator of a pack."""
    from axolotl.utils.collators.batching import V2BatchSamplerDataCollatorForSeq2Seq
    from axolotl.utils.data.wrappers import _is_dataset_already_tokenized
    from axolotl.utils.trainer import add_position_ids
    from datasets import load_dataset

    data = load_dataset("parquet", data_files=f"{folder}/shards/**/*.parquet", split="train")
    assert _is_dataset_already_tokenized(data)
    data = data.map(add_position_ids, batched=True)
    collate = V2BatchSamplerDataCollatorForSeq2Seq(tokenizer=_padding_tokenizer())
    for first in range(0, len(data), 8):
        rows = [data[index] for index in range(first, min(first + 8, len(data)))]
        batch = {name: tensor[0].tolist() for name, tensor in collate([rows]).items()}
        at = 0
        for number, row in enumerate(rows, 1):
            end = at + len(row["input_ids"])
            # The mask is the number of the sample in the pack: by it attention keeps samples apart.
            assert set(batch["attention_mask"][at:end]) == {number}
            assert batch["position_ids"][at:end] == list(range(end - at))
            yield batch["input_ids"][at:end], batch["labels"][at:end]
            at = end
        assert at == len(batch["input_ids"])


def _padding_tokenizer():
    """A tokenizer for collators, which need none but its padding."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = models.WordLevel({"<pad>": 0}, unk_token="<pad>")
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), pad_token="<pad>")


def llamafactory(folder):
    """`format = "arrow"`: what `tokenized_path` does."""
    from datasets import load_from_disk
    from llamafactory.data.data_utils import get_dataset_module

    module = get_dataset_module(load_from_disk(f"{folder}/shards"))
    for row in module["train_dataset"]:
        assert row["attention_mask"] == [1] * len(row["input_ids"]) and row["images"] is None
        yield row["input_ids"], row["labels"]


def ms_swift(folder):
    """`format = "arrow"`: what `--cached_dataset FOLDER/shards/train` does."""
    from swift.pipelines.utils import get_cached_dataset

    args = types.SimpleNamespace(
        cached_dataset=[f"{folder}/shards/train"], cached_val_dataset=[], data_seed=0, max_length=1 << 20,
        truncation_strategy="delete", packing=False,
    )
    train, _ = get_cached_dataset(args)
    for row in train[0]:
        assert row["lengths"] == len(row["input_ids"])
        yield row["input_ids"], row["labels"]


def megatron_bridge(folder):
    """`format = "megatron-bridge"`: the packed data set and its collator. The model is fed all tokens
    of a sample but the last, and asked for all but the first."""
    import numpy as np
    from megatron.bridge.data.packing.parquet import GPTSFTPackedParquetDataset

    tokenizer = types.SimpleNamespace(eos_id=151643, bos_id=0, pad_id=151643)
    data = GPTSFTPackedParquetDataset(file_path=f"{folder}/shards", tokenizer=tokenizer, max_seq_length=1 << 20,
                                      prompt_template="{text} {answer}")
    for index in range(len(data)):
        row = data[index]
        data.validate_row(index, row["input_ids"], row["loss_mask"], row["seq_boundaries"][:-1])
        batch = data.collate_fn([{**row, "input_ids": np.array(row["input_ids"])}])
        tokens, asked = np.array(batch["tokens"][0]), np.array(batch["labels"][0])
        mask, at = np.array(batch["loss_mask"][0]), 0
        for start, end in zip(row["seq_boundaries"], row["seq_boundaries"][1:]):
            stop = at + end - start - 1
            ids = tokens[at:stop].tolist() + asked[stop - 1 : stop].tolist()
            labels = [-100] + [int(i) if m else -100 for i, m in zip(asked[at:stop], mask[at:stop])]
            yield ids, labels
            at = stop


def olmo(folder):
    """`format = "olmo"`: OLMo-core's own reading of documents, ids and label mask."""
    import numpy as np
    from olmo_core.data.utils import iter_document_indices, load_array_slice

    for path in sorted(glob.glob(f"{folder}/shards/token_ids_part_*.npy")):
        mask_path = path.replace("token_ids_part_", "labels_mask_part_")
        for start, end in iter_document_indices(path):
            ids = load_array_slice(path, start, end, np.uint32)
            mask = load_array_slice(mask_path, start, end, np.bool_)
            yield ids.tolist(), [int(i) if m else -100 for i, m in zip(ids, mask)]


def megatron(folder):
    """`format = "megatron"`: the indexed data set; plain text, every token is trained on."""
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    for path in sorted(glob.glob(f"{folder}/shards/*.bin")):
        data = IndexedDataset(path.removesuffix(".bin"))
        for index in range(len(data)):
            ids = data[index].tolist()
            yield ids, [-100, *ids[1:]]


def streaming(folder):
    """`format = "mds"`: MosaicML streaming, hashes checked."""
    from streaming import StreamingDataset

    data = StreamingDataset(local=f"{folder}/shards", batch_size=1, validate_hash="sha256")
    for row in data:
        start = 0
        for length in row["seq_lengths"].tolist():
            end = start + length
            yield row["input_ids"][start:end].tolist(), row["labels"][start:end].tolist()
            start = end
