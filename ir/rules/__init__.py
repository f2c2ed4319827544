"""The rewrite rules, one `.egg` file a rule set. `ir/egraph/rulebook.py` reads them in order."""
