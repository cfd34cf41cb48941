"""Records to tables, statistics and pages. Which file belongs to which theme:

records to cells     records, columns, facts, row, summary (what a table and a report say), summarise, build
statistics           evidence, sequential, interim, choice (stats/ has the arithmetic, on arrays)
words                word, verdict, claims, findings, marks, far_above, nats, reference
analyses             agreement, worth, regime, factors, tuning, beyond, beyond_records, probes, softmax, schemes,
                     syntax, extras, comparison, pool, ladder, search, search_summary, layer_table, table2, parameters,
                     architecture, attention
the table            table, table_data, latex
formats              blocks, shown by render/; plain
words of analyses    words, agreement_text, beyond_text, comparison_text, pool_text, ladder_text
the main figure      forest (as data), study_forest (of a study), forest_text, forest_picture
pictures             svg, figures, intervals, curves, panels, grid, heat_map, beyond_figure,
                     comparison_figure, factor_figure, layer_figure, search_figures
pages                document, page, search_page, links, provenance, translations
other programs       archive, export
"""
