"""One run. Which file belongs to which theme:

its folder           folder, record, outcome, divergence
an attempt           own_class_check, resume, train, trainer, weights, samples, evaluation, length_buckets,
                     rescored
its record           result, environment
"""
