"""Records to tables, statistics and pages. Which file belongs to which theme:

records to cells     records, columns, facts, summary (what a table and a report say), summarise, build
statistics           statistics, resampling, evidence, multiplicity, sequential, power, choice
words                verdict, verdicts, claims, findings, marks, far_above, nats, reference
analyses             agreement, factors, tuning, beyond, beyond_records, probes, softmax, schemes, extras,
                     comparison, search, layer_table, table2, parameters, architecture, attention
views of the table   text, formats, latex, page_table; of analyses: blocks, shown by render/
words of analyses    agreement_text, beyond_text, comparison_text
pictures             svg, figures, forest, curves, panels, contour, grid, heat_map, beyond_figure,
                     comparison_figure, layer_figure, search_figures
pages                document, page, search_page, links, provenance, translations
other programs       archive, export
"""
