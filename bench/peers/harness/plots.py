"""Small SVG bar charts, readable on light and dark pages. Pure."""

from html import escape

WIDTH, ROW, LEFT, RIGHT = 760, 22, 290, 90
OURS, OTHERS, SECOND = "#2f6fde", "#8a94a6", "#c3c9d4"


def bars(title, rows, unit):
    """`rows`: (name, value, second value or None, ours). The longest bar takes the whole width."""
    rows = [row for row in rows if row[1] is not None]
    most = max([max(row[1], row[2] or 0) for row in rows], default=1) or 1
    height = 34 + ROW * len(rows) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
        ' font-family="system-ui, sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff" rx="4"/>',
        f'<text x="8" y="20" font-size="14" font-weight="600" fill="#1b1f27">{escape(title)}</text>',
    ]
    for at, (name, value, second, ours) in enumerate(rows):
        parts += bar(34 + ROW * at, name, value, second, ours, most, unit)
    return "\n".join([*parts, "</svg>", ""])


def bar(y, name, value, second, ours, most, unit):
    scale = (WIDTH - LEFT - RIGHT) / most
    weight = ' font-weight="600"' if ours else ""
    yield f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end" fill="#1b1f27"{weight}>{escape(name)}</text>'
    end = max(value, second or 0) * scale
    if second is not None:
        yield f'<rect x="{LEFT}" y="{y + 3}" width="{second * scale:.1f}" height="{ROW - 7}" fill="{SECOND}"/>'
    colour = OURS if ours else OTHERS
    yield f'<rect x="{LEFT}" y="{y + 3}" width="{max(1, value * scale):.1f}" height="{ROW - 7}" fill="{colour}"/>'
    text = short(value) if second is None else f"{short(value)} / {short(second)}"
    yield f'<text x="{LEFT + end + 6:.1f}" y="{y + 14}" fill="#1b1f27">{text}{escape(unit)}</text>'


def short(value):
    if value >= 10_000:
        return f"{value / 1000:.0f}k"
    if value >= 1000:
        return f"{value / 1000:.1f}k"
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}" if value < 1 else f"{value:.1f}"
