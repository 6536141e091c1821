//! File names of arbitrary bytes, from the calls of a program to the layouts of its files.

mod common;

use common::servers::Servers;
use common::shown;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

#[test]
fn files_of_any_name_are_traced_planned_for_and_moved() {
    let servers = Servers::of(
        &[("hdd", ""), ("hdd", ""), ("ssd", ""), ("ssd", "")],
        "",
        "",
        "[layout]\nclass = \"hdd\"\n",
    );
    let script = r#"
import os, random
random.seed(7)
os.mkdir(b"/weft/caf\xe9 *")
for name in (b"part *\xff1 ", b"part *\xff2 ", b"a*1"):
    fd = os.open(b"/weft/caf\xe9 */" + name, os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"x" * (4 << 20), 0)
    for _ in range(400):
        os.pread(fd, 4096, random.randrange(1000) * 4096)
"#;
    let [trace, csv, again, plan] =
        ["a.wtrace", "a.csv", "b.wtrace", "plan.toml"].map(|name| servers.path(name));
    let text = |path: &std::path::Path| path.to_str().expect("text").to_owned();
    let [trace, csv, again, plan] = [trace, csv, again, plan].map(|path| text(&path));
    servers.weft(["run", "--trace", &trace, "--", "python3", "-c", script]);
    // By way of CSV, which keeps every name exactly.
    servers.weft(["trace", "export", &trace, "--csv", &csv]);
    servers.weft(["trace", "export", &csv, "--wtrace", &again]);
    let back = servers.weft(["trace", "export", &again, "--csv", "-"]);
    assert_eq!(back, std::fs::read_to_string(&csv).expect("written"));
    assert!(back.contains(r"/weft/caf\xe9 */part *\xff1\x20,"), "{back:.2000}");

    // DEF uses all targets, whatever it gains.
    servers.weft(["plan", &again, "--planner", "def", "--output", &plan, "--only", "/weft/caf"]);
    let planned = std::fs::read_to_string(&plan).expect("written");
    assert!(planned.contains(r"/weft/caf\xe9 \x2a/part \x2a\xff* '"), "{planned}");
    let applied = servers.weft(["apply", &plan]);
    assert!(applied.contains("3 files with bytes"), "{applied}");
    assert!(applied.contains(r"weft migrate $'/weft/caf\xe9 */part *\xff1 '"), "{applied}");

    // A new matching file gets the layout, one with a similar name does not, and existing files are moved to it.
    let dir = b"/weft/caf\xe9 */";
    let layout = |name: &[u8]| {
        let path = [dir, name].concat();
        let stripes: [&[u8]; 2] = [b"getstripe", &path];
        let told = servers.weft(stripes.map(OsStr::from_bytes));
        told.lines().skip(1).filter(|line| line.contains("ssd")).count()
    };
    let touch: [&[u8]; 3] =
        [b"touch", &[&dir[..], b"part *\xff30 "].concat(), &[&dir[..], b"part x\xff30 "].concat()];
    servers.weft(touch.map(OsStr::from_bytes));
    assert_eq!((layout(b"part *\xff1 "), layout(b"part x\xff30 ")), (0, 0));
    assert_ne!(layout(b"part *\xff30 "), 0);
    // Also with a second name that sorts first and matches no rule of the plan.
    let link: [&[u8]; 3] = [b"ln", &[&dir[..], b"part *\xff1 "].concat(), b"/weft/Another"];
    servers.weft(link.map(OsStr::from_bytes));
    let none = servers.command(["migrate", "--plan", &plan, "/weft/Another"]).output().expect("weft starts");
    assert!(
        none.status.success() && shown(&none).contains("has no rule for any of them"),
        "{}",
        shown(&none)
    );
    let told = servers.weft(["migrate", "-r", "--plan", &plan, "/weft"]);
    assert!(told.contains("moved 3 files"), "{told}");
    let right = servers.weft(["apply", &plan]);
    assert!(right.contains("4 files of the plan with the right layout already"), "{right}");

    let gone = servers.weft(["apply", &plan, "--remove"]);
    assert!(gone.contains(r"/part \*\xff{n} "), "{gone}");
    let check = servers.command(["fsck"]).output().expect("weft starts");
    assert!(check.status.success(), "{}", shown(&check));
}
