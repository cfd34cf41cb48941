"""Who does which run of a study. Which file belongs to which theme:

the queue            queue, rows
workers              launch, pool, training, resources, clusters, prepare_data_rows, row_tuning, rounds
what people see      view, wandb_mirror, studies, time_estimate, worker_options
housekeeping         housekeeping
"""
