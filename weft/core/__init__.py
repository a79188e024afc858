"""What every level shares: nodes, types, rewrite rules, text forms, the pass log, errors."""
