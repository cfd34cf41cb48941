"""One run. Which file belongs to which theme:

its folder           folder, outcome, divergence
an attempt           own_class_check, train, trainer, weights, samples, evaluation, rescored
its record           record, environment
"""
