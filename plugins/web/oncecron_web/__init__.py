"""Pages for a browser (jinja2, `render`): records of plain values come in, HTML goes out. Only `cli` reads a store."""
