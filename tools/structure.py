#!/usr/bin/env python3
"""Prints the structure of the crates: modules, layers, dependencies, cycles, and types that are too large.

    python3 tools/structure.py [ROOT] [--crate NAME] [--files]

ROOT is a checkout, by default that of this script; older checkouts work, too.

A room is a file or a folder directly under a crate's `src/`; an arrow is a `use`, or a path in the code, from
one room into another; test code is ignored. A circle is a cycle of rooms. An upward arrow points up in the order
of a circle's rooms that a greedy search finds. The layers are those of the graph
whose nodes are the circles. With --files the circles are those among files instead of rooms.

A type's lines are those of its `impl` blocks in the whole crate; a type above IMPL_MAX lines or FIELDS_MAX
fields is listed.
"""

import argparse
import re
from collections import defaultdict
from pathlib import Path

IMPL_MAX = 600
FIELDS_MAX = 20


def strip(text):
    """The code without comments, strings and inline test modules, with the same number of lines."""
    text = re.sub(r'/\*.*?\*/', lambda m: re.sub(r'[^\n]', ' ', m.group()), text, flags=re.S)
    text = re.sub(r"b?'(?:\\.[^']*|[^'\\\n])'", "' '", text)
    token = re.compile(r'//[^\n]*|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"', re.S)
    text = token.sub(lambda m: re.sub(r'[^\n]', ' ', m.group()), text)
    while found := re.search(r'#\[cfg\(test\)\]\s*(?:pub(?:\([a-z]+\))?\s+)?mod\s+\w+\s*\{', text):
        end = closing(text, found.end() - 1)
        text = text[: found.start()] + re.sub(r'[^\n]', ' ', text[found.start() : end]) + text[end:]
    return text


def closing(text, start):
    """The position behind the brace that closes the one at `start`."""
    depth = 0
    for place in range(start, len(text)):
        if text[place] == '{':
            depth += 1
        elif text[place] == '}':
            depth -= 1
            if depth == 0:
                return place + 1
    return len(text)


def flat(tree):
    """The paths of a `use` tree."""
    found = re.match(r'\s*([\w:]*?)(?:::)?\s*\{(.*)\}\s*$', tree, re.S)
    if not found:
        return [re.split(r'\s+as\s+', tree.strip())[0]]
    head, body, depth, item, items = found.group(1), found.group(2), 0, '', []
    for char in body:
        depth += (char == '{') - (char == '}')
        if char == ',' and depth == 0:
            items.append(item)
            item = ''
        else:
            item += char
    paths = [path for one in items + [item] if one.strip() for path in flat(one)]
    return [f'{head}::{path}'.replace('::self', '') if head else path for path in paths]


class Crate:
    def __init__(self, folder):
        self.name = folder.name
        self.code = {}
        source = folder / 'src'
        for file in sorted(source.rglob('*.rs')):
            if file.stem.startswith('test') or 'tests' in file.relative_to(source).parts[:-1]:
                continue
            parts = list(file.relative_to(source).with_suffix('').parts)
            if parts[-1] in ('mod', 'lib', 'main'):
                parts.pop()
            self.code[tuple(parts)] = strip(file.read_text())

    def module(self, path):
        """The module of a path: its longest prefix that is a file."""
        while path and tuple(path) not in self.code:
            path = path[:-1]
        return tuple(path)

    def arrows(self):
        """The modules that each module names."""
        graph = {module: set() for module in self.code}
        for module, code in self.code.items():
            paths = [p for tree in re.findall(r'\buse\s+([^;]+);', code) for p in flat(tree)]
            paths += re.findall(r'\b(?:crate|super)(?:::\w+)+', code)
            for path in paths:
                path = path.split('::')
                if path[0] == 'crate':
                    target = path[1:]
                elif path[0] in ('super', 'self'):
                    target = list(module)
                    while path and path[0] in ('super', 'self'):
                        if path.pop(0) == 'super':
                            target = target[:-1]
                    target += path
                elif module + (path[0],) in self.code:
                    target = list(module) + path
                else:
                    continue
                target = self.module(target)
                # A module and its parents and children count as one.
                if target != module[: len(target)] and module != target[: len(module)]:
                    graph[module].add(target)
        return graph

    def types(self):
        """For each type: lines, methods and files of its `impl` blocks, and its fields."""
        found = defaultdict(lambda: {'lines': 0, 'methods': 0, 'files': set(), 'fields': 0})
        head = re.compile(r'^impl\b(?:<[^{]*?>)?\s*([^{;]*?)\s*(?:where[^{]*)?\{', re.M)
        for module, code in self.code.items():
            for block in head.finditer(code):
                of = re.split(r'\bfor\b', block.group(1))[-1].strip()
                name = re.match(r'(?:&(?:mut )?)?(?:\w+::)*(\w+)', of)
                if not name:
                    continue
                end = closing(code, block.end() - 1)
                entry = found[name.group(1)]
                entry['lines'] += code.count('\n', block.start(), end) + 1
                entry['methods'] += len(re.findall(r'\bfn \w+', code[block.start() : end]))
                entry['files'].add('/'.join(module) or 'lib')
            for block in re.finditer(r'\bstruct (\w+)[^;{(]*\{', code):
                body = code[block.end() : closing(code, block.end() - 1) - 1]
                fields = re.findall(r'(?m)^\s*(?:pub(?:\([a-z ]+\))?\s+)?\w+\s*:(?!:)', body)
                entry = found[block.group(1)]
                entry['fields'] = max(entry['fields'], len(fields))
        return found


def circles(graph):
    """The strongly connected components, in an order in which arrows point to earlier ones."""
    number, low, stack, parts = {}, {}, [], []

    def visit(node):
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in number:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], number[other])
        if low[node] == number[node]:
            part = []
            while not part or part[-1] != node:
                part.append(stack.pop())
            parts.append(sorted(part))

    for node in sorted(graph):
        if node not in number:
            visit(node)
    return parts


def upward(graph, parts):
    """Arrows that point up in the greedy order: the room with the fewest arrows into the rest of its circle comes next."""
    count = 0
    for part in parts:
        left = set(part)
        while left:
            inner = lambda one: len(graph[one] & left - {one})
            lowest = min(sorted(left), key=inner)
            count += inner(lowest)
            left.remove(lowest)
    return count


def layers(graph, parts):
    place = {node: index for index, part in enumerate(parts) for node in part}
    height = []
    for index, part in enumerate(parts):
        below = {place[other] for node in part for other in graph[node]} - {index}
        height.append(1 + max((height[other] for other in below), default=0))
    return max(height, default=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('root', nargs='?', type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument('--crate', help='only this one')
    parser.add_argument('--files', action='store_true', help='circles among files')
    arguments = parser.parse_args()
    for manifest in sorted((arguments.root / 'crates').glob('*/Cargo.toml')):
        crate = Crate(manifest.parent)
        if arguments.crate not in (None, crate.name):
            continue
        files = crate.arrows()
        rooms = defaultdict(set)
        for module, targets in files.items():
            if module:
                rooms[module[:1]] |= {one[:1] for one in targets if one and one[0] != module[0]}
        rooms = {room: targets & set(rooms) for room, targets in rooms.items()}
        parts = circles(rooms)
        arrows = sum(map(len, rooms.values()))
        print(
            f'{crate.name}: {len(files)} files, {len(rooms)} rooms, {layers(rooms, parts)} layers, '
            f'{arrows} arrows, {upward(rooms, parts)} upward'
        )
        drawn = files if arguments.files else rooms
        for part in circles(drawn):
            if len(part) > 1:
                print(f'  circle of {len(part)}:', ', '.join('/'.join(one) or 'lib' for one in part))
        for name, one in sorted(crate.types().items(), key=lambda item: -item[1]['lines']):
            if one['lines'] > IMPL_MAX or one['fields'] > FIELDS_MAX:
                print(
                    f'  {name}: {one["lines"]} impl lines, {one["methods"]} methods, '
                    f'{one["fields"]} fields, {len(one["files"])} files'
                )


if __name__ == '__main__':
    main()
