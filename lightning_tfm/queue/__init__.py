"""Who does which run of a study. Which file belongs to which theme:

the queue            queue, storage, journal, open, sharing (no shared files), rows
workers              launch, worker, training, join, devices, resources, slurm, row_data, tuned, rounds
searches             sampling, search_results
what people see      view, wandb_mirror, studies (status), forecast (plan), command (how a study was started)
housekeeping         housekeeping
"""
