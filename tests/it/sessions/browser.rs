//! The exported page in a real browser: what a person sees and does there. The browser is driven over its debugging pipe.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::export::{browser, session};

/// Longest wait for something to happen on the page.
const LIMIT: Duration = Duration::from_secs(30);

/// A page in a browser of its own.
struct Page {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    target: String,
    number: u64,
    _dir: tempfile::TempDir,
}

impl Drop for Page {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Page {
    /// Opens the page of the example session; `None` when there is no browser.
    fn open() -> Option<Self> {
        let browser = browser()?;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("page.html");
        session(dir.path()).export_html_to(&file).unwrap();
        let mut process = started(&browser, dir.path());
        let mut page = Self {
            input: process.stdin.take().unwrap(),
            output: BufReader::new(process.stdout.take().unwrap()),
            process,
            target: String::new(),
            number: 0,
            _dir: dir,
        };
        let made = page.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": made["targetId"], "flatten": true});
        let attached = page.call("Target.attachToTarget", attach);
        page.target = attached["sessionId"].as_str().unwrap().to_owned();
        page.call(
            "Emulation.setFocusEmulationEnabled",
            json!({"enabled": true}),
        );
        page.call(
            "Page.navigate",
            json!({"url": format!("file://{}", file.display())}),
        );
        page.until("document.readyState === 'complete' && !!document.querySelector('nav a.here')");
        Some(page)
    }

    /// Carries out a command of the protocol.
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut record = json!({"id": self.number, "method": method, "params": params});
        if !self.target.is_empty() {
            record["sessionId"] = self.target.clone().into();
        }
        self.input
            .write_all(format!("{record}\0").as_bytes())
            .unwrap();
        loop {
            let mut answer = Vec::new();
            self.output.read_until(0, &mut answer).unwrap();
            assert_eq!(answer.pop(), Some(0), "the browser ended");
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            if answer["id"] == self.number {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    /// The value of a script in the page.
    fn eval(&mut self, script: &str) -> Value {
        let asked = json!({"expression": script, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{script}: {answer}");
        answer["result"]["value"].clone()
    }

    #[track_caller]
    fn until(&mut self, script: &str) {
        let began = Instant::now();
        while self.eval(script) != json!(true) {
            assert!(began.elapsed() < LIMIT, "never came: {script}");
            std::thread::yield_now();
        }
    }

    fn key(&mut self, key: &str) {
        let text = match key {
            "Enter" => Some("\r"),
            one if one.chars().count() == 1 => Some(one),
            _ => None,
        };
        let codes = [
            ("Enter", 13),
            ("Escape", 27),
            ("ArrowDown", 40),
            ("ArrowUp", 38),
            ("Tab", 9),
        ];
        let code = codes
            .iter()
            .find(|(name, _)| *name == key)
            .map_or(0, |(_, code)| *code);
        let mut down = json!({"type": "keyDown", "key": key, "windowsVirtualKeyCode": code});
        if let Some(text) = text {
            down["text"] = text.into();
        }
        self.call("Input.dispatchKeyEvent", down);
        self.call(
            "Input.dispatchKeyEvent",
            json!({"type": "keyUp", "key": key, "windowsVirtualKeyCode": code}),
        );
    }

    fn click(&mut self, selector: &str) {
        let place = self.eval(&format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect();
            return [r.left + Math.min(r.width / 2, 60), r.top + r.height / 2]; }})()"
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            self.call(
                "Input.dispatchMouseEvent",
                json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1}),
            );
        }
    }

    /// The look of the page: colours, width in pixels, screen or paper.
    fn look(&mut self, scheme: &str, width: u32, media: &str) {
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false}),
        );
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call(
            "Emulation.setEmulatedMedia",
            json!({"media": media, "features": features}),
        );
        self.until(&format!("innerWidth === {width}"));
    }

    /// Keeps a picture, for whoever wants to look: `PI_NVIM_PICTURES` names the folder.
    fn picture(&mut self, name: &str) {
        use base64::Engine as _;
        let Some(folder) = std::env::var_os("PI_NVIM_PICTURES") else {
            return;
        };
        let shot = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let bytes =
            base64::engine::general_purpose::STANDARD.decode(shot["data"].as_str().unwrap());
        std::fs::write(
            Path::new(&folder).join(format!("{name}.png")),
            bytes.unwrap(),
        )
        .unwrap();
    }
}

fn started(browser: &Path, home: &Path) -> Child {
    // The protocol is spoken over descriptors 3 and 4.
    Command::new("sh")
        .args([
            "-c",
            "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1",
            "sh",
        ])
        .arg(browser)
        .args([
            "--headless=new",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ])
        .arg(format!(
            "--user-data-dir={}",
            home.join("profile").display()
        ))
        .env("HOME", home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Texts whose contrast with what is behind them is below 4.5 to 1, as `contrast text`.
const PALE: &str = r"(() => {
    const parts = colour => (colour.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
    const behind = element => {
        for (let at = element; at; at = at.parentElement) {
            const [r, g, b, a] = parts(getComputedStyle(at).backgroundColor);
            if (a === undefined || a === 1) return [r, g, b];
        }
        return [255, 255, 255];
    };
    const light = rgb => {
        const [r, g, b] = rgb.map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const found = [];
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const text = walk.currentNode.textContent.trim(), element = walk.currentNode.parentElement;
        // Connectors are drawing, not text.
        if (!text || element.closest('script, .pre') || !element.checkVisibility()) continue;
        const one = light(parts(getComputedStyle(element).color).slice(0, 3)), other = light(behind(element));
        const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
        if (contrast < 4.5) found.push(contrast.toFixed(2) + ' ' + text.slice(0, 40));
    }
    return found;
})()";

#[test]
fn every_text_can_be_read_in_both_themes_and_at_both_widths() {
    let Some(mut page) = Page::open() else { return };
    page.click("#tools");
    page.eval("document.querySelectorAll('details').forEach(it => { it.open = true; })");
    for scheme in ["light", "dark"] {
        for width in [1280, 420] {
            page.look(scheme, width, "screen");
            let dark = page.eval("getComputedStyle(document.body).backgroundColor")
                != "rgb(255, 255, 255)";
            assert_eq!(dark, scheme == "dark");
            assert_eq!(page.eval(PALE), json!([]), "{scheme} at {width}");
            let over = page.eval("document.documentElement.scrollWidth - innerWidth");
            assert!(
                over.as_i64().unwrap() <= 0,
                "{scheme} at {width}: {over} pixels too wide"
            );
            page.eval("scrollTo(0, 0)");
            page.picture(&format!("{scheme}-{width}"));
        }
    }
    // The button wins over the system.
    page.look("dark", 1280, "screen");
    page.click("#theme");
    page.until("getComputedStyle(document.body).backgroundColor === 'rgb(255, 255, 255)'");
    page.look("light", 1280, "screen");
    page.click("#theme");
    page.until("getComputedStyle(document.body).backgroundColor !== 'rgb(255, 255, 255)'");
    assert_eq!(
        page.eval("document.querySelector('#theme').textContent"),
        "Theme: dark"
    );
}

#[test]
fn a_search_is_walked_with_the_keyboard() {
    let Some(mut page) = Page::open() else { return };
    page.look("light", 1280, "screen");
    page.key("/");
    page.until("document.activeElement.id === 'query'");
    for letter in "lex() docs".chars() {
        page.key(&letter.to_string());
    }
    page.until("document.querySelector('#count').textContent === '1 found'");
    page.key("Enter");
    page.until("document.querySelector('#count').textContent === '1 of 1'");
    page.until(
        "(() => { const r = document.querySelector('article.found').getBoundingClientRect(); return r.top >= 0 && r.top < innerHeight; })()",
    );
    // What is folded opens when the word is in it.
    page.key("Escape");
    page.until("!document.querySelector('article.found') && document.activeElement.id !== 'query'");
    page.key("/");
    for letter in "rejected".chars() {
        page.key(&letter.to_string());
    }
    page.key("Enter");
    page.until("!!document.querySelector('article.found details.tool[open]')");
    page.picture("search");
    // A hit on the other branch shows that branch.
    page.key("Escape");
    page.key("/");
    for letter in "first branch answer".chars() {
        page.key(&letter.to_string());
    }
    page.key("Enter");
    page.until(
        "(() => { const found = document.querySelector('article.found'); return !!found && !found.hidden && found.textContent.includes('First branch answer.'); })()",
    );
}

#[test]
fn the_tree_leads_to_every_branch_by_mouse_and_by_key() {
    let Some(mut page) = Page::open() else { return };
    page.look("light", 1280, "screen");
    let shown = |text: &str| {
        format!(
            "[...document.querySelectorAll('article:not([hidden])')].some(it => it.textContent.includes({text:?}))"
        )
    };
    assert_eq!(page.eval(&shown("First branch answer.")), false);
    page.eval("[...document.querySelectorAll('nav a')].find(it => it.textContent.includes('First branch answer')).id = 'other'");
    page.click("#other");
    page.until(&shown("First branch answer."));
    assert_eq!(page.eval(&shown("Second branch answer.")), false);
    assert_eq!(
        page.eval("[...document.querySelectorAll('nav a.here')].map(it => it.id)"),
        json!(["other"]),
        "one row is where one is"
    );
    // One stop for the tab key; arrows walk, Enter goes.
    assert_eq!(
        page.eval("document.querySelectorAll('nav a[tabindex=\"0\"]').length"),
        1
    );
    page.eval("document.querySelector('#other').focus()");
    page.key("ArrowUp");
    page.until(
        "document.activeElement === document.querySelector('#other').previousElementSibling",
    );
    page.key("ArrowDown");
    page.until("document.activeElement.id === 'other'");
    page.eval("[...document.querySelectorAll('nav a')].find(it => it.textContent.includes('Second branch answer')).focus()");
    page.key("Enter");
    page.until(&shown("Second branch answer."));
    assert_eq!(page.eval(&shown("First branch answer.")), false);
}

#[test]
fn on_a_narrow_screen_the_tree_opens_below_the_bar_and_closes_again() {
    let Some(mut page) = Page::open() else { return };
    page.look("dark", 420, "screen");
    let open = "document.querySelector('nav').checkVisibility()";
    assert_eq!(page.eval(open), false);
    page.click("#menu");
    page.until(open);
    page.until(
        "document.querySelector('nav').getBoundingClientRect().top >= document.querySelector('.bar').getBoundingClientRect().bottom - 1",
    );
    page.picture("tree-420");
    page.click("#menu");
    page.until(&format!("!{open}"));
    page.click("#menu");
    page.until(open);
    page.click("h1");
    page.until(&format!("!{open}"));
    page.click("#menu");
    page.until(open);
    page.key("Escape");
    page.until(&format!("!{open}"));
}

#[test]
fn on_paper_nothing_is_cut_and_the_ground_is_white() {
    let Some(mut page) = Page::open() else { return };
    page.click("#theme");
    page.click("#theme");
    page.click("#tools");
    page.look("dark", 800, "print");
    assert_eq!(
        page.eval("getComputedStyle(document.body).backgroundColor"),
        "rgb(255, 255, 255)"
    );
    for part in [".bar", "nav"] {
        assert_eq!(
            page.eval(&format!(
                "document.querySelector({part:?}).checkVisibility()"
            )),
            false
        );
    }
    let cut = "[...document.querySelectorAll('main pre')].filter(it => it.scrollHeight > it.clientHeight + 1).length";
    assert_eq!(page.eval(cut), 0);
    assert_eq!(page.eval(PALE), json!([]));
    let pdf = page.call("Page.printToPDF", json!({}));
    assert!(pdf["data"].as_str().unwrap().len() > 1000);
}
