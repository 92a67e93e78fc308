"""Tree transduction: from prefix to infix formulas."""
