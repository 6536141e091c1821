# SPDX-License-Identifier: (Apache-2.0 OR MIT)

from spack.package import *


class Weft(Package):
    """Parallel file system in user space for unmodified MPI, HDF5, Python and shell programs."""

    # Set this to the repository with this recipe, which may be the path of a clone: file:///home/ada/weft
    git = "file:///usr/src/weft"

    license("Apache-2.0 OR MIT")

    version("main", branch="main")

    depends_on("c", type="build")
    # No MPI library: the preload library uses the one that the program has loaded.
    depends_on("rust@1.90:", type="build")
    depends_on("gmake", type="build")

    def install(self, spec, prefix):
        cargo, make = which("cargo", required=True), which("make", required=True)
        packages = [word for name in ("cli", "preload", "capi") for word in ("-p", "weft-" + name)]
        cargo("build", "--release", "--locked", *packages)
        make("stage", "PREFIX=" + prefix)

    def setup_run_environment(self, env):
        env.set("WEFT_ROOT", self.prefix)

    @run_after("install")
    def check_command(self):
        weft = Executable(self.prefix.bin.weft)
        if str(self.spec.version) not in ("main", weft("--version", output=str).split()[-1]):
            raise InstallError("the installed command is of another version")
