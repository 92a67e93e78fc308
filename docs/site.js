// Tables of verdicts can be filtered: by words anywhere in a row, and by the verdict.

for (const place of document.querySelectorAll(".filtered")) {
  const rows = [...place.querySelectorAll("tbody tr")];
  const heads = [...place.querySelectorAll("thead th")].map((cell) => cell.textContent);
  const column = heads.indexOf("verdict");
  const verdict = (row) => row.children[column].textContent.trim();
  const words = Object.assign(document.createElement("input"), { type: "search", placeholder: "words in a row" });
  words.setAttribute("aria-label", "Show rows with these words");
  const chosen = document.createElement("select");
  chosen.setAttribute("aria-label", "Show rows with this verdict");
  chosen.append(new Option("every verdict", ""), ...[...new Set(rows.map(verdict))].sort().map((name) => new Option(name, name)));
  const shown = document.createElement("span");
  shown.setAttribute("role", "status");
  const filter = () => {
    const asked = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !asked.every((word) => text.includes(word)) || (chosen.value && verdict(row) !== chosen.value);
      count += !row.hidden;
    }
    shown.textContent = `${count} of ${rows.length} rows`;
  };
  words.addEventListener("input", filter);
  chosen.addEventListener("change", filter);
  const bar = Object.assign(document.createElement("div"), { className: "filter" });
  bar.append(words, chosen, shown);
  place.prepend(bar);
  filter();
}
