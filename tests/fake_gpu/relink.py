# SPDX-License-Identifier: BSD-3-Clause
"""Programs and libraries of a build, some of whose objects are compiled anew: of a source that was
changed, or with other flags. They come into a folder beside those of the build, which stay."""
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess


class Build:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        with open(self.folder / "compile_commands.json", encoding="utf-8") as file:
            self.objects = {re.search(r" -o (\S+)", unit["command"])[1]: unit
                            for unit in json.load(file)}
        listed = self.output("ctest", "--show-only=json-v1")
        self.tests = {test["name"]: test for test in json.loads(listed)["tests"]}

    def output(self, *command):
        return subprocess.run(command, cwd=self.folder, text=True, stdout=subprocess.PIPE,
                              check=True).stdout

    def link_of(self, product):
        """The command that links a program or library, whose path is relative to the folder."""
        lines = self.output("ninja", "-t", "commands", product).splitlines()
        return next(line for line in reversed(lines) if f" -o {product} " in line)

    def sources_in(self, output):
        """The sources of an object, which are many in a unity build."""
        file = self.objects[output]["file"]
        if "/Unity/" not in file:
            return [file]
        text = pathlib.Path(file).read_text(encoding="utf-8")
        return re.findall(r'#include "([^"]+)"', text)

    def objects_in(self, link):
        return [word for word in shlex.split(link) if word in self.objects]

    def compile(self, output, to, changed=None, flags=()):
        """`changed`: texts of sources by their paths."""
        to.mkdir(parents=True, exist_ok=True)
        made = to / output.replace("/", "_")
        unit = made.with_suffix(".cpp")
        lines = []
        for source in self.sources_in(output):
            if changed and source in changed:
                copy = to / pathlib.Path(source).name
                copy.write_text(changed[source], encoding="utf-8")
                source = copy
            lines.append(f'#include "{source}"\n')
        unit.write_text("".join(lines), encoding="utf-8")
        command = shlex.split(self.objects[output]["command"])
        command[command.index("-o") + 1] = str(made)
        command[command.index("-c") + 1] = str(unit)
        subprocess.run([*command, *flags], cwd=self.folder, check=True)
        return str(made)

    def link(self, product, to, made, flags=()):
        """Links into `to` as it is linked in the build, with `made` in the place of objects."""
        path = to / product
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        words = [made.get(word, word) for word in shlex.split(self.link_of(product))]
        words[words.index("-o") + 1] = str(path)
        command = [word for word in words if word not in (":", "&&")]
        subprocess.run([*command, *flags], cwd=self.folder, check=True)

    def overlay(self, to):
        """All libraries of the build, in whose place link() puts others. The library looks for its
        modules beside the file that it is: that must not be a symbolic link to another folder."""
        shutil.rmtree(to, ignore_errors=True)
        for path in (self.folder / "lib").rglob("*.so*"):
            link = to / path.relative_to(self.folder)
            link.parent.mkdir(parents=True, exist_ok=True)
            if path.is_symlink():
                link.symlink_to(os.readlink(path))
            else:
                link.hardlink_to(path)

    def replace(self, source, to, tests, text):
        """Links into `to` all libraries and the programs of the tests with another text of this
        source."""
        products = [*self.libraries(), *(self.product_of(test) for test in tests)]
        made = {}
        for product in products:
            objects = [o for o in self.objects_in(self.link_of(product))
                       if source in self.sources_in(o)]
            for o in objects:
                if o not in made:
                    made[o] = self.compile(o, to / "objects", {source: text}, ["-w"])
            if objects:
                self.link(product, to, made)

    def libraries(self):
        """The library and the module of nccl, relative to the folder."""
        return [os.path.relpath((self.folder / path).resolve(), self.folder)
                for path in ("lib/libc10d.so", "lib/c10d/backends/libc10d_nccl.so")]

    def product_of(self, test):
        """The program of a test, relative to the folder."""
        programs = [word for word in self.tests[test]["command"]
                    if word.startswith(f"{self.folder}/bin/")]
        return os.path.relpath(programs[-1], self.folder)

    def run(self, test, overlay, timeout, *arguments, **variables):
        """Runs a test with the products in `overlay`, and more arguments: its exit status, None if
        it takes longer, and what it has said."""
        properties = {p["name"]: p["value"] for p in self.tests[test]["properties"]}
        env = dict(os.environ, LD_LIBRARY_PATH=str(overlay / "lib"), **variables)
        env.update(pair.split("=", 1) for pair in properties.get("ENVIRONMENT", []))
        program = self.product_of(test)
        command = [*self.tests[test]["command"], *arguments]
        if (overlay / program).exists():
            command[command.index(str(self.folder / program))] = str(overlay / program)
        with subprocess.Popen(command, cwd=properties["WORKING_DIRECTORY"], env=env, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, start_new_session=True) as process:
            try:
                said = process.communicate(timeout=timeout)[0]
                return process.returncode, said
            except subprocess.TimeoutExpired:
                return None, ""
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
