"""Pages for a browser, which read the store by `store_questions` alone and are drawn by `render`, and metrics."""
