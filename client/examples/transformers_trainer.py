"""The Trainer of Hugging Face that Motley can stop and continue on other GPUs without losing or repeating a step.

Submitted by transformers_trainer.yaml. Outside Motley: python transformers_trainer.py
"""

import argparse
import os
import sys
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

import tracking
from motley_client.batch_scaling import LR_SCALINGS, share_batch
from motley_client.training import checkpoint_dir
from motley_client.transformers import MotleyCallback
from toy import GLOBAL_BATCH, Perceptron, Waves


class PrintLoss(TrainerCallback):
    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if state.is_world_process_zero and "loss" in logs:
            print(f"step {state.global_step} loss {logs['loss']}", flush=True)


def main(options: argparse.Namespace) -> int:
    set_seed(0)
    if os.environ.get("RANK", "0") == "0":
        tracking.name_run(options.track)  # the Trainer's own callbacks for W&B and MLflow read the variables
    motley = MotleyCallback(initial_batch=GLOBAL_BATCH, lr_scaling=options.lr_scaling)
    share = share_batch(GLOBAL_BATCH, int(os.environ.get("WORLD_SIZE", "1")))
    arguments = TrainingArguments(
        str(checkpoint_dir()),
        max_steps=options.steps,
        per_device_train_batch_size=share.samples,
        gradient_accumulation_steps=share.micro_batches,
        learning_rate=0.01,
        lr_scheduler_type="constant",
        use_cpu=not torch.cuda.is_available(),  # or each rank would train alone where there is no GPU
        logging_steps=options.report_every,
        save_steps=500,  # what a lost node costs
        save_total_limit=2,
        report_to=options.track or "none",
        disable_tqdm=True,
    )
    trainer = Trainer(Perceptron(), arguments, train_dataset=Waves(), callbacks=[motley, PrintLoss()])
    trainer.train(resume_from_checkpoint=motley.resume_path())
    return motley.exit_code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--report-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--lr-scaling", choices=LR_SCALINGS, default="adascale", help="learning rate of a tuned batch")
    parser.add_argument("--track", choices=["wandb", "mlflow"], help="log the loss there, as one run over all attempts")
    sys.exit(main(parser.parse_args()))
