//! Files for packages and schedulers.

mod common;

use common::{WEFT, isolated, needs, root, shown};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

#[test]
fn systemd_accepts_the_units() {
    needs("systemd-analyze");
    let dir = tempfile::tempdir().expect("a directory");
    for (unit, instance) in
        [("weft@.service", "weft@node0.service"), ("weft-mount@.service", "weft-mount@scratch-a.service")]
    {
        let unit = std::fs::read_to_string(root().join("contrib/systemd").join(unit)).expect("the unit");
        // As `make install` changes it.
        let installed = unit.replace("ExecStart=weft", &format!("ExecStart={WEFT}"));
        assert_ne!(installed, unit);
        let file = dir.path().join(instance);
        let verify = |text: &str| {
            std::fs::write(&file, text).expect("written");
            Command::new("systemd-analyze")
                .args(["verify", "--man=no"])
                .arg(&file)
                .output()
                .expect("it starts")
        };
        let output = verify(&installed);
        assert!(output.status.success() && output.stderr.is_empty(), "{}", shown(&output));
        // Exposure of the unit; without a sandbox it is 9.4 of 10.
        let mut measured = Command::new("systemd-analyze");
        measured.args(["security", "--offline=true", "--no-pager", "--threshold"]);
        let limit = if instance.starts_with("weft-mount") { "50" } else { "20" };
        let output = measured.arg(limit).arg(&file).output().expect("it starts");
        assert!(output.status.success(), "more than {limit}/10: {}", shown(&output));
        // The check finds errors.
        let output = verify(&installed.replace("LimitNOFILE=", "LimitNOFILES="));
        assert!(String::from_utf8_lossy(&output.stderr).contains("LimitNOFILES"), "{}", shown(&output));
    }
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server as the unit runs it: a user without rights of root, who owns directories and key. Other users of the host and
/// root are served through its socket.
#[test]
fn a_server_runs_as_a_user_of_its_own() {
    const SERVER: u32 = 4998;
    if !common::skip::unless_root("acting for several users") {
        return;
    }
    needs("setpriv");
    let dir = tempfile::Builder::new().prefix("weft-unit-").tempdir().expect("a directory");
    let at = dir.path().display();
    let text = format!(
        "[cluster]\nname = \"unit\"\nkey_file = \"{at}/key\"\n[[server]]\nname = \"s0\"\naddress = \"unix:{at}/run/s0.sock\"\n\
         log = \"{at}/log/s0\"\naudit = \"{at}/log/audit\"\nmetrics = \"unix:{at}/run/metrics\"\n\
         [server.metadata]\npath = \"{at}/metadata\"\n[[server.target]]\nid = 0\nclass = \"hdd\"\npath = \"{at}/target\"\n"
    );
    let file = dir.path().join("cluster.toml");
    std::fs::write(&file, text).expect("written");
    let given = |name: &str, mode: u32| {
        let path = dir.path().join(name);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("mode");
        std::os::unix::fs::chown(&path, Some(SERVER), Some(SERVER)).expect("given away");
    };
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("mode");
    for (name, mode) in [("run", 0o755), ("log", 0o750), ("metadata", 0o700), ("target", 0o700)] {
        std::fs::create_dir(dir.path().join(name)).expect("made");
        given(name, mode);
    }
    common::succeeded(isolated(WEFT).args(["key", "make"]).arg(dir.path().join("key")));
    given("key", 0o600);
    let weft = |uid: u32, args: &[&str]| {
        let mut command = isolated("setpriv");
        let id = uid.to_string();
        command.args([
            "--reuid",
            &id,
            "--regid",
            &id,
            "--clear-groups",
            "--no-new-privs",
            "--bounding-set=-all",
        ]);
        command.args([WEFT, "--cluster"]).arg(&file).args(args).env("HOME", "/nonexistent");
        command
    };
    let mut serve = weft(SERVER, &["serve", "s0", "--format", "--announce"]);
    let mut serve = Ended(serve.stdout(Stdio::piped()).spawn().expect("weft starts"));
    let mut ready = [0; 5];
    serve.0.stdout.as_mut().expect("a pipe").read_exact(&mut ready).expect("ready");
    let root = |args: &[&str]| common::succeeded(isolated(WEFT).arg("--cluster").arg(&file).args(args));
    root(&["mkdir", "-m", "1777", "/weft/all"]);
    root(&["quota", "set", "-q", "--user", "4001", "--bytes", "1G"]);
    let write = "head -c 300000 /dev/urandom > /weft/all/a && cat /weft/all/a | wc -c && ls -ln /weft/all/a";
    let said = common::succeeded(&mut weft(4001, &["run", "--", "sh", "-c", write]));
    assert!(said.starts_with("300000\n") && said.contains(" 4001 4001 "), "{said}");
    assert!(root(&["fsck"]).contains(" 0 problems"));
    root(&["stop"]);
    assert!(serve.0.wait().expect("our own child").success());
}

/// Returns the names of the variables that lines of a shell file set at their beginning.
fn variables(text: &str, before: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(before)?.split_once('='));
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let mut names: Vec<_> = lines.map(|(name, _)| name.to_owned()).filter(|name| is_name(name)).collect();
    names.sort();
    names
}

#[test]
fn settings_of_slurm_jobs_are_documented() {
    let read = |name: &str| std::fs::read_to_string(root().join(name)).expect(name);
    let script = read("contrib/slurm/common.sh");
    // Settings stand between the constants and the first function.
    let settings =
        script.split_once("\nSCRATCH=").expect("settings").1.split_once("\njob=").expect("the end").0;
    let settings = variables(&format!("SCRATCH={settings}"), "");
    let mut example = variables(&read("contrib/slurm/slurm.conf.example"), "#");
    example.dedup();
    assert_eq!(settings, example);
    let guide = read("docs/guide/slurm.md");
    assert!(settings.len() > 10);
    for name in settings {
        assert!(guide.contains(&format!("`{name}`")), "{name}");
    }
    // Weft looks for jobs where the prolog creates them.
    let jobs = variables_value(&script, "JOBS");
    assert!(read("crates/fs/config/src/scheduled.rs").contains(&format!("\"{jobs}\"")), "{jobs}");
}

fn variables_value<'a>(script: &'a str, name: &str) -> &'a str {
    let line = script.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    line.expect("a constant")
}

#[test]
fn bash_and_slurm_can_run_the_scripts() {
    for name in ["prolog", "epilog", "common.sh"] {
        let path = root().join("contrib/slurm").join(name);
        let checked = Command::new("bash").arg("-n").arg(&path).output().expect("it starts");
        assert!(checked.status.success(), "{}", shown(&checked));
        let mode = path.metadata().expect("a file").permissions().mode();
        assert_eq!(mode & 0o111 != 0, name != "common.sh", "{name}: {mode:o}");
    }
}

#[test]
fn keys_of_jobs_are_equal_on_all_nodes_and_private() {
    let dir = tempfile::tempdir().expect("a directory");
    let derive = |file: &str, from: &str, name: &str| -> Output {
        let mut weft = isolated(WEFT);
        weft.current_dir(dir.path()).args(["key", "derive", file, "--from", from, "--name", name]);
        weft.output().expect("it starts")
    };
    let read = |file: &str| std::fs::read_to_string(dir.path().join(file)).expect("a key");
    let made =
        isolated(WEFT).current_dir(dir.path()).args(["key", "make", "site"]).output().expect("it starts");
    assert!(made.status.success(), "{}", shown(&made));
    for (file, name) in [("n1", "job 1"), ("n2", "job 1"), ("other", "job 2")] {
        let derived = derive(file, "site", name);
        assert!(derived.status.success(), "{}", shown(&derived));
        let mode = dir.path().join(file).metadata().expect("a key").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    assert_eq!(read("n1"), read("n2"));
    assert_ne!(read("n1"), read("other"));
    let refused = derive("n1", "site", "job 1");
    assert!(
        !refused.status.success() && shown(&refused).contains("never overwritten"),
        "{}",
        shown(&refused)
    );
    std::fs::set_permissions(dir.path().join("site"), PermissionsExt::from_mode(0o644)).expect("set");
    let refused = derive("n3", "site", "job 1");
    assert!(!refused.status.success() && !dir.path().join("n3").exists(), "{}", shown(&refused));
}

/// Writes a modulefile as `make stage` does, with the built command in the directory of commands.
fn module(prefix: &Path, template: &str, to: &str) {
    let text =
        std::fs::read_to_string(root().join("contrib/modulefiles").join(template)).expect("a modulefile");
    let prefix = prefix.to_str().expect("utf-8");
    let libdir = format!("{prefix}/lib");
    let text = text.replace("@PREFIX@", prefix).replace("@LIBDIR@", &libdir).replace("@VERSION@", "1.2");
    assert!(!text.contains('@'), "{text}");
    let to = Path::new(prefix).join(to);
    std::fs::create_dir_all(to.parent().expect("a directory")).expect("created");
    std::fs::write(to, text).expect("written");
}

/// Variables that the module sets, in the order in which scripts of the tests print them.
const MODULE_VARIABLES: &str = "PATH CPATH LIBRARY_PATH LD_LIBRARY_PATH PKG_CONFIG_PATH WEFT_ROOT";

#[test]
fn the_module_sets_and_unsets_the_environment() {
    const INIT: &str = "/usr/share/modules/init/bash";
    assert!(Path::new(INIT).exists(), "{INIT} is missing; run `make deps`");
    let dir = tempfile::tempdir().expect("a directory");
    module(dir.path(), "weft.tcl.in", "modulefiles/weft/1.2");
    // Not a Tcl file: Environment Modules ignores it.
    module(dir.path(), "weft.lua.in", "modulefiles/weft/1.2.lua");
    std::fs::create_dir(dir.path().join("bin")).expect("created");
    std::os::unix::fs::symlink(WEFT, dir.path().join("bin/weft")).expect("linked");
    let at = dir.path().display();
    let script = format!(
        "PATH=/usr/bin:/bin; unset LD_LIBRARY_PATH; . {INIT}; module use {at}/modulefiles
         show() {{ for name in {MODULE_VARIABLES}; do echo \"$name=${{!name-unset}}\"; done; }}
         show; module load weft && weft --version && module list 2>&1 && show
         echo unloaded; module unload weft; show"
    );
    let output = isolated("bash").args(["-c", &script]).output().expect("bash starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("weft/1.2"), "{}", shown(&output));
    assert!(text.contains(&format!("\nweft {}", env!("CARGO_PKG_VERSION"))), "{text}");
    let (before, rest) = text.split_once("\nweft ").expect("the version");
    let (loaded, after) = rest.split_once("unloaded\n").expect("a mark");
    assert_eq!(before.trim(), after.trim(), "unloading restores the environment");
    for line in expected(dir.path()) {
        assert!(loaded.contains(&line), "{line} is not in {loaded}");
    }
}

/// Returns the lines that [`MODULE_VARIABLES`] have after the module was loaded.
fn expected(prefix: &Path) -> Vec<String> {
    let at = prefix.display();
    [
        format!("PATH={at}/bin"),
        format!("CPATH={at}/include"),
        format!("\nLIBRARY_PATH={at}/lib"),
        format!("LD_LIBRARY_PATH={at}/lib"),
        format!("PKG_CONFIG_PATH={at}/lib/pkgconfig"),
        format!("WEFT_ROOT={at}"),
    ]
    .into()
}

#[test]
fn the_module_for_lmod_does_what_the_other_does() {
    needs("lua5.3");
    let dir = tempfile::tempdir().expect("a directory");
    module(dir.path(), "weft.lua.in", "weft.lua");
    // Functions of Lmod that print what they are called with. Other names are errors.
    let script = format!(
        "local set = function(name, value) print(name .. '=' .. value) end
         local text = function(value) assert(value:find('Weft 1.2')) end
         local lmod = {{help = text, whatis = text, conflict = print, setenv = set, prepend_path = set}}
         print() assert(loadfile('{}/weft.lua', 't', lmod))()",
        dir.path().display()
    );
    let output = isolated("lua5.3").args(["-e", &script]).output().expect("lua starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", shown(&output));
    for line in expected(dir.path()) {
        assert!(text.contains(&line), "{line} is not in {text}");
    }
    assert_eq!(text.lines().count(), 2 + expected(dir.path()).len(), "{text}");
}

/// Runs the Spack recipe with stand-ins for Spack's functions, as far as they read it, and installs with recorded
/// commands.
#[test]
fn the_recipe_of_spack_builds_what_the_makefile_installs() {
    needs("python3");
    let script = root().join("crates/interfaces/cli/tests/common/spack_recipe.py");
    let recipe = root().join("contrib/spack/packages/weft/package.py");
    let output = isolated("python3").arg(script).arg(recipe).output().expect("python starts");
    assert!(output.status.success(), "{}", shown(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    let expected = [
        "cargo build --release --locked -p weft-cli -p weft-preload -p weft-capi",
        "make stage PREFIX=/prefix",
        "/prefix/bin/weft --version",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    let makefile = std::fs::read_to_string(root().join("Makefile")).expect("the Makefile");
    assert!(makefile.contains("\nstage:\n"));
    assert!(makefile.contains("build --release -p weft-cli -p weft-preload -p weft-capi"));
}

#[test]
fn the_container_builds_what_the_makefile_installs() {
    let read = |name: &str| std::fs::read_to_string(root().join(name)).expect(name);
    let file = read("contrib/container/Containerfile");
    assert!(
        file.contains("-p weft-cli -p weft-preload -p weft-capi") && file.contains("make stage DESTDIR=/out")
    );
    let (makefile, rules) = (read("Makefile"), read("contrib/debian/rules"));
    for text in [file, rules] {
        // Variables that these files set exist in the Makefile.
        for name in text.split_whitespace().filter_map(|word| Some(word.split_once('=')?.0)) {
            if name.ends_with("DIR") && name != "DESTDIR" && name.chars().all(|c| c.is_ascii_uppercase()) {
                assert!(makefile.contains(&format!("\n{name} ?= ")), "{name}");
            }
        }
    }
}
