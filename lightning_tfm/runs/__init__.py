"""One run. Which file belongs to which theme:

its folder           folder, record, outcome, folders, divergence
an attempt           resume, train, trainer, weights, samples, evaluation, length_buckets, rescored
its record           result, model_stats, environment, rng_check
its processes        malloc
"""
