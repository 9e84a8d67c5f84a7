"""Pure values: ids, the event envelope and its catalogue, canonical JSON, locators, marks. No I/O, no clock."""
