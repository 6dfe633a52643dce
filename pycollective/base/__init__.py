"""What every other room may use, and what uses none of them: clocks, checks of arguments, advice in errors."""
