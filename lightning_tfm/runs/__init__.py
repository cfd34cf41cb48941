"""One run. Which file belongs to which theme:

its folder           directory, owner, record, outcome, folders, divergence
an attempt           attempt, start, train, trainer, weights, samples, scored, by_length, as_scored
its record           result, counts, environment, draws
its processes        launchers, ranks, torchrun, processes, threads, freed_memory
"""
