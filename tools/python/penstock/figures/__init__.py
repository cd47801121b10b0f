"""What `penstock experiment` measures: lab.py runs penstock, svg.py draws, report.py writes, hyperion*.py have the figures."""
