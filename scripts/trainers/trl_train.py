"""Trains a tiny Qwen3 with random weights on a CPU from potable's Parquet shards by TRL's SFTTrainer,
with no conversion; then shows that the borders of samples are used.

    python3 scripts/trainers/trl_train.py OUT [STEPS]

OUT is a run with `format = "parquet"` and a short `[pack] length` (512 or so). Needs torch,
transformers, datasets and trl.
"""

import sys

import torch
from datasets import load_dataset
from transformers import Qwen3Config, Qwen3ForCausalLM
from trl import SFTConfig, SFTTrainer
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

PAD = 151643


def model():
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=151936, hidden_size=8, intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=8, attn_implementation="sdpa",
        initializer_range=0.2,  # weights large enough that what is attended to shows
    )
    return Qwen3ForCausalLM(config)


def loss_of(net, batch):
    """Sum of the losses and number of trained tokens."""
    with torch.no_grad():
        labels = batch["labels"]
        # Without a cache, as in training: with one, sdpa does not look at the positions.
        out = net(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False)
        logits = out.logits.float()
        shifted = torch.nn.functional.pad(labels, (0, 1), value=-100)[..., 1:]
        loss = torch.nn.functional.cross_entropy(
            logits.view(-1, logits.size(-1)), shifted.reshape(-1), ignore_index=-100, reduction="sum"
        )
        return loss.item(), (shifted != -100).sum().item()


def mean(pairs):
    pairs = list(pairs)
    return sum(loss for loss, _ in pairs) / sum(count for _, count in pairs)


def main():
    folder, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20
    data = load_dataset("parquet", data_files=f"{folder}/shards/**/*.parquet", split="train")
    data = data.remove_columns("sample_ids")
    net = model().eval()
    collate = DataCollatorForLanguageModeling(pad_token_id=PAD, padding_free=True)
    rows = data.select(range(min(4, len(data)))).to_list()
    packed = mean(loss_of(net, collate([row])) for row in rows)
    single = []
    for row in rows:
        start = 0
        for length in row["seq_lengths"]:
            part = {key: row[key][start : start + length] for key in ("input_ids", "labels")}
            single.append(loss_of(net, collate([{**part, "seq_lengths": [length]}])))
            start += length
    merged = mean(
        loss_of(net, collate([{**row, "seq_lengths": [len(row["input_ids"])]}])) for row in rows
    )
    print(flush=True, end=f"loss packed {packed:.6f}, unpacked {mean(single):.6f}, without seq_lengths {merged:.6f}\n")
    assert abs(packed - mean(single)) < 1e-4, "packed and unpacked differ"
    assert abs(packed - merged) > 1e-4, "the borders make no difference"

    config = SFTConfig(
        output_dir="/tmp/potable-trl", max_steps=steps, per_device_train_batch_size=1, learning_rate=1e-3,
        packing=False, padding_free=True, max_length=None, logging_steps=5, report_to=[], use_cpu=True,
        save_strategy="no", bf16=False, dataset_kwargs={"skip_prepare_dataset": True},
    )
    trainer = SFTTrainer(model=model(), args=config, train_dataset=data, processing_class=tokenizer())
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print(f"{steps} steps by SFTTrainer: loss {losses[0]:.3f} to {losses[-1]:.3f}")


def tokenizer():
    """SFTTrainer wants one for padding and saving; the rows are tokenised already."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"<|endoftext|>": 0, "<|im_end|>": 1}, unk_token="<|endoftext|>"))
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<|im_end|>", pad_token="<|endoftext|>")


if __name__ == "__main__":
    main()
