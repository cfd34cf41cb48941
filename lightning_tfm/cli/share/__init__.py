"""Commands that use or share what was trained: validate and test, translate, export, records, wandb."""
