"""The profile plane: sections in scope, schemas, and folds of what memories say."""
