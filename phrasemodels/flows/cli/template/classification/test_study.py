"""Every row of the table can be planned; the row with phrases, and no other, parses the corpus first."""

from study import TABLES


def test_every_row_has_its_steps() -> None:
    rows = {row.row: row.steps(0).stages for row in TABLES["1"].experiments("my-study", "1", "sample")}
    assert all(set(stages) == {"model", "predictions", "scores"} for stages in rows.values())
    parsed = {
        name: "trees of" in str(stages["model"].inputs["train"].inputs["rows"].label) for name, stages in rows.items()
    }
    assert parsed == {"bilstm": False, "transformer": False, "pairs": False, "phrases": True}
