"""Machinery that every level shares: nodes, types, rules, text, verification, passes."""
