"""What a refused command says."""

from flows.cli import main


def refused(argv, capsys):
    """The one line that a refused command leaves on stderr."""
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 1, captured.err
    assert "Traceback" not in captured.err
    return lines[0]
