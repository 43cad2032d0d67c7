"""What browser tests share: reading the viewer's state, and handling the page."""

import time


def state(page):
    v = page.locator(".csd-viewer")
    cells = [v.get_attribute(f"data-cells{i}") for i in range(4)]
    return v.get_attribute("data-status"), [int(c) for c in cells if c is not None]


def until(page, condition, seconds=60):
    """Poll the viewer's state; returns every different state seen."""
    seen, end = [], time.time() + seconds
    while time.time() < end:
        now = state(page)
        if not seen or seen[-1] != now:
            seen.append(now)
        if condition(*now):
            return seen
        time.sleep(0.05)
    raise AssertionError(f"never came true; saw {seen[-5:]}")


def set_slider(page, label, value):
    box = page.get_by_label(f"number input for {label}")
    box.fill(str(value))
    box.press("Enter")


def inked(page, selector):
    """Share of non-transparent pixels of a canvas."""
    return page.eval_on_selector(selector, """c => {
        const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0;
        for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n / (d.length / 4); }""")  # fmt: skip
