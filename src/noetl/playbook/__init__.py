"""YAML in, a Playbook out: grammar, parsing with line and column, checks, templates and the JSON Schema for editors."""
