"""Who does which run of a study. Which file belongs to which theme:

the queue            queue, storage, studies
workers              launch, pool, resources, clusters, prepare_data_rows, row_tuning, rounds
searches             sampling, search_results
what people see      view, wandb_mirror
housekeeping         housekeeping
"""
