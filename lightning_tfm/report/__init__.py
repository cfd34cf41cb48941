"""Records to tables, statistics and pages. Which file belongs to which theme:

records to cells     records, summary, build_summary, study_report
statistics           significance, sequential
formats              blocks, serialize
a search             search_report, search_summary, search_figures
other programs       archive, curve_export
"""
