"""The types of the package (__init__.pyi) name what the package has: each public name, and each parameter."""
import ast
import inspect

from snake import *

STUB = os.path.join(PACKAGE, "penstock", "__init__.pyi")


def arguments(node):
    a = node.args
    return [x.arg for x in (*a.posonlyargs, *a.args, *([a.vararg] if a.vararg else []), *a.kwonlyargs, *([a.kwarg] if a.kwarg else []))]


def same(node, function, where):
    assert arguments(node) == list(inspect.signature(function).parameters), (where, arguments(node), inspect.signature(function))


@test
def every_public_name_has_its_types():
    need("numpy", sys.executable)
    need("zmq", sys.executable)
    import penstock
    assert os.path.exists(os.path.join(PACKAGE, "penstock", "py.typed"))
    with open(STUB) as f:
        tree = ast.parse(f.read())
    typed = {node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert set(penstock.__all__) <= set(typed), set(penstock.__all__) - set(typed)
    checked = 0
    for name, node in typed.items():
        if name not in penstock.__all__:
            continue  # a part of another one's value
        real = getattr(penstock, name)
        if isinstance(node, ast.FunctionDef):
            same(node, real, name)
            continue
        for member in node.body:
            if not isinstance(member, ast.FunctionDef):
                continue
            there = inspect.getattr_static(real, member.name)
            checked += 1
            assert isinstance(there, property) == bool(member.decorator_list), (name, member.name)
            if not isinstance(there, property):
                same(member, there, f"{name}.{member.name}")
        public = {key for key, value in vars(real).items() if not key.startswith("_") and (callable(value) or isinstance(value, property))}
        assert public <= {member.name for member in node.body if isinstance(member, ast.FunctionDef)}, (name, public)
    assert checked > 40, checked


if __name__ == "__main__":
    main()
