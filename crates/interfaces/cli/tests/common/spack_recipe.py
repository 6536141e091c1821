"""Executes a Spack recipe with stand-ins for `spack.package`, and prints the commands of its installation.

usage: spack_recipe.py package.py
"""

import sys
import types


class Prefix(str):
    def __getattr__(self, name):
        return Prefix(f"{self}/{name}")


class Executable:
    def __init__(self, name):
        self.name = name

    def __call__(self, *words, output=None):
        print(self.name, *words)
        return "weft main\n" if output else None


def directive(*words, **options):
    """A directive of the class body. Recipes of releases would add checksums, which this one has not."""
    allowed = {"branch", "type", "when"}
    assert words and all(isinstance(word, str) for word in words) and set(options) <= allowed, (words, options)


package = types.ModuleType("spack.package")
package.Package = object
package.version = package.depends_on = package.license = directive
package.run_after = lambda phase: lambda function: function
package.which = lambda name, required: Executable(name)
package.Executable = Executable
package.InstallError = RuntimeError
sys.modules["spack"], sys.modules["spack.package"] = types.ModuleType("spack"), package

names = {"__name__": "recipe"}
with open(sys.argv[1], encoding="utf-8") as recipe:
    exec(compile(recipe.read(), sys.argv[1], "exec"), names)
weft = names["Weft"]()
weft.prefix = Prefix("/prefix")
weft.spec = types.SimpleNamespace(version="main")
variables = {}
weft.setup_run_environment(types.SimpleNamespace(set=variables.__setitem__))
assert variables == {"WEFT_ROOT": "/prefix"}, variables
weft.install(weft.spec, weft.prefix)
weft.check_command()
