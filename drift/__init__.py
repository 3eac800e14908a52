"""Change detection, pure: values of one metric in, changes out. No clock, no broker, no store."""
