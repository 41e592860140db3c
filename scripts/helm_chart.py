"""What scripts/chart writes: the generated files of the Helm chart; former ones go."""

from __future__ import annotations

from webhook.install.chart import CHART, chart_files

WRITTEN_BY_HAND = {"templates/_helpers.tpl", "templates/NOTES.txt", "templates/refuse.yaml"}


def main() -> None:
    files = chart_files()
    for path in CHART.rglob("*"):
        name = str(path.relative_to(CHART))
        if path.is_file() and name not in WRITTEN_BY_HAND | files.keys():
            path.unlink()
    for name, text in files.items():
        target = CHART / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    print(CHART)


if __name__ == "__main__":
    main()
