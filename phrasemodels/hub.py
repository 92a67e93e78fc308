"""Models as portable folders: saved, loaded by a folder or a name on the Hugging Face Hub, and uploaded there.

A folder holds safetensors, JSON and text, but no code. Names on a hub need `huggingface_hub` (the extra `hub`). The environment
variable HF_ENDPOINT names another server with the Hub's interface.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

FILES = ("*.json", "*.safetensors", "*.txt", "*.md")  # what is downloaded of a repository


class Pretrained(ABC):
    """A model with methods for saving to a folder, loading from a folder or a hub, and uploading to a hub."""

    card: Mapping[str, Any]

    @abstractmethod
    def save_pretrained(self, folder: str | Path) -> Path:
        """Write the model to a folder for `from_pretrained`. Return the folder."""

    @classmethod
    @abstractmethod
    def _from_folder(cls, folder: Path, *parts: Any) -> Self: ...

    @classmethod
    def from_pretrained(cls, name: str | Path, *parts: Any, revision: str | None = None, **hub: Any) -> Self:
        """Load a model from a folder, or from a repository of a hub, for example "user/model".

        Args:
            parts: Your own classes in the model's configuration.
            revision: A branch, tag or commit.
            hub: Further arguments of `huggingface_hub.snapshot_download`, for example token or cache_dir.

        Raises:
            ValueError: The files are no model of this kind.
            OSError: The repository does not exist.
        """
        if Path(name).is_dir():
            return cls._from_folder(Path(name), *parts)
        folder = _library().snapshot_download(str(name), revision=revision, allow_patterns=[*FILES], **hub)
        return cls._from_folder(Path(folder), *parts)

    def push_to_hub(
        self, name: str, *, private: bool | None = None, message: str = "Upload a model", **hub: Any
    ) -> str:
        """Upload the model to a repository of a hub. Return the address of the commit.

        A missing repository is made.

        Args:
            private: Make a new repository private.
            hub: Arguments of `huggingface_hub.HfApi`, for example token.

        Raises:
            ValueError: The licences of the model's data allow no public copy of it.
        """
        api = _library().HfApi(**hub)
        if not (self.card.get("redistributable", True) or "licence" in self.card):  # of the model itself
            refused = (
                f"its data may not be passed on (licences: {', '.join(self.card.get('licences', ())) or 'unknown'})"
            )
            if not private:
                raise ValueError(f"{refused}: push_to_hub({name!r}, private=True)")
            if api.repo_exists(name) and not api.repo_info(name).private:
                raise ValueError(f"{refused}, and {name} is public: make it private, or name a new one")
        repository = api.create_repo(name, private=private, exist_ok=True).repo_id
        with TemporaryDirectory() as folder:
            self.save_pretrained(Path(folder, "model"))
            said = api.upload_folder(repo_id=repository, folder_path=Path(folder, "model"), commit_message=message)
        return str(said.commit_url)


def _library() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise ValueError(
            "names on a hub need huggingface_hub: pip install huggingface_hub, or give a folder"
        ) from error
    return huggingface_hub


def readme(card: Mapping[str, Any], loading: str, tag: str) -> str:
    """Return README.md of a model, its card on a hub. loading: the code for loading it. tag: its problem."""
    name = str(card.get("name") or card.get("experiment") or "A model of PhraseModels")
    head = {"library_name": "phrasemodels", "tags": ["phrasemodels", tag], "license": "other"}
    lines = ["---", *(f"{key}: {json.dumps(value)}" for key, value in head.items()), "---", "", f"# {name}", ""]
    if paper := card.get("paper"):
        lines += [f"A system of {paper['name']}: {paper['citation']}", ""]
    said = {
        "Experiment": card.get("experiment", "") if card.get("name") else "",
        "Corpus": card.get("corpora") or card.get("corpus"),
        "Seed, updates, parameters": ", ".join(str(card[k]) for k in ("seed", "steps", "parameters") if k in card),
        "Licences of the data": ", ".join(card.get("licences", ())),
        "Licence of the model": card.get("licence", ""),
    }
    lines += [f"- {key}: {value}" for key, value in said.items() if value]
    if card.get("stand_in"):
        lines.append("- The corpus stands in for the paper's: scores cannot be compared with printed ones.")
    lines += ["", *_scores(card.get("scores", {})), "## Use", "", "```python", loading, "```", ""]
    if paper:
        lines += ["## Cite", "", "```bibtex", paper["bibtex"], "```", ""]
    return "\n".join(lines)


def _value(value: Any) -> str:
    return ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value)


def _scores(scores: Mapping[str, Any]) -> list[str]:
    """Return a table of scores: of this seed, and the mean of all seeds with half of its 95 % interval, if they are known."""
    rows = []
    for name, score in scores.items():
        if not isinstance(score, Mapping):
            rows.append((name, str(score), "", "1", ""))
        elif "value" in score:
            mean = f"{score['mean']:.2f} ± {score['half_width']:.2f}" if score.get("half_width") is not None else ""
            rows.append((name, f"{score['value']:.2f}", mean, str(score["seeds"]), score["how"]))
        else:  # of several test sets
            rows += [(f"{name}: {metric}", _value(value), "", "1", "") for metric, value in score.items()]
    if not rows:
        return []
    table = [("metric", "this model", "mean of seeds ± half of the 95 % interval", "seeds", "how"), ("---",) * 5, *rows]
    lines = ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table)
    return ["## Scores on the test set", "", *lines, ""]
