// Opens the gateway's page in Chromium: axe, foreign requests, sideways scroll, keys, a path that stalls.
// Arguments: URL, token, folder for screenshots, process of the gateway behind.
const { chromium } = require("playwright-core");
const fs = require("fs");
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const [url, token, folder, behind] = process.argv.slice(2);

const findings = [];
const found = text => { findings.push(text); console.log(`finding: ${text}`); };

async function look(browser, width, scheme, forced) {
  const name = `${width}-${scheme}${forced ? "-forced" : ""}`;
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: scheme, forcedColors: forced ? "active" : "none", bypassCSP: true });
  const page = await context.newPage();
  page.on("request", request => { if (!request.url().startsWith(url) && !request.url().startsWith("data:")) found(`${name}: foreign request ${request.url()}`); });
  page.on("pageerror", error => found(`${name}: ${error.message}`));
  page.on("console", message => { if (message.type() === "error") found(`${name}: ${message.text()}`); });
  await page.goto(url);
  await page.waitForSelector("#paths tbody tr");
  await page.waitForTimeout(4500);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (wide > 0) found(`${name}: scrolls sideways by ${wide} px`);
  await page.evaluate(axe);
  const result = await page.evaluate(() => globalThis.axe.run());
  for (const one of result.violations) found(`${name}: axe ${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map(node => node.html).join(" ")}`);
  await page.screenshot({ path: `${folder}/${name}.png`, fullPage: true });
  return { context, page };
}

// Milliseconds until a condition of the page holds.
async function until(page, condition, limit) {
  const began = Date.now();
  await page.waitForFunction(condition, null, { timeout: limit, polling: 50 });
  return Date.now() - began;
}

(async () => {
  const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
  for (const width of [390, 1280]) {
    for (const scheme of ["light", "dark"]) (await look(browser, width, scheme, false)).context.close();
  }
  (await look(browser, 1280, "light", true)).context.close();
  const { page } = await look(browser, 1280, "light", false);
  await page.keyboard.press("j");
  if (!await page.evaluate(() => document.activeElement?.closest("tbody tr") !== null)) found("`j` focuses no row");
  await page.keyboard.press("?");
  if (!await page.evaluate(() => document.querySelector("#help").open)) found("`?` opens no help");
  await page.keyboard.press("Escape");
  await page.click("#key");
  await page.fill("#token", token);
  await page.click("#sign-in button[value=use]");
  await page.click("#paths button[aria-label='Disable path 1 of array']");
  await page.screenshot({ path: `${folder}/order.png` });
  await page.click("#confirm button[value=do]");
  await until(page, () => /disabled/.test(document.querySelector("#paths").textContent) && /done/.test(document.querySelector("#told").textContent), 10000).catch(() => found("the page has not disabled the path"));
  await page.evaluate(axe);
  for (const one of (await page.evaluate(() => globalThis.axe.run())).violations) found(`signed in: axe ${one.id}: ${one.nodes[0].html}`);
  await page.screenshot({ path: `${folder}/disabled.png`, fullPage: true });
  await page.click("#paths button[aria-label='Enable path 1 of array']");
  await page.click("#confirm button[value=do]");
  await until(page, () => !/disabled|▲|✖/.test(document.querySelector("#paths").textContent), 10000).catch(() => found("the page has not enabled the path"));
  // The target behind stops answering while a host reads: its path must say so.
  process.kill(Number(behind), "SIGSTOP");
  try {
    const shown = await until(page, () => /▲|✖/.test(document.querySelector("#paths")?.textContent ?? ""), 10000).catch(() => null);
    if (shown === null) found("no path turned in 10 s");
    else console.log(`a path that stalls turned after ${shown} ms${shown > 2000 ? ", the target is 2000" : ""}: ${await page.evaluate(() => document.querySelector("#paths").innerText.replace(/\s+/g, " "))}`);
    await page.waitForTimeout(300);
    await page.screenshot({ path: `${folder}/stalled.png`, fullPage: true });
  } finally {
    process.kill(Number(behind), "SIGCONT");
  }
  await browser.close();
  process.exit(findings.length > 0 ? 1 : 0);
})();
