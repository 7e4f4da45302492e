"""Pages for a browser: records of plain values come in, HTML goes out. Nothing of a store is read here."""
