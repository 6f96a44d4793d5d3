"""The cases. The runner imports every module here; `@case` registers them."""
