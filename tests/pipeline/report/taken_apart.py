"""Pages taken apart."""

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "hr", "input", "col", "source", "wbr", "base", "area", "embed", "track"}


class Page(HTMLParser):
    """A page taken apart; asserts that every element is closed in order."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.attributes, self.words, self.values = [], set(), [], [], []
        self.feed(html)
        self.close()
        assert self.open == []
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        self.values += [value for key, value in attrs if key == "data-v" or (tag, key) == ("data", "value")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.words.append(data)

    def all(self, name):
        return [value for key, value in self.attributes if key == name]
