// Logs in to the console of a host by a link, and waits for the name of an endpoint: console.js LINK NAME
import { chromium } from "../console/node_modules/playwright-core/index.mjs";

const [link, name] = process.argv.slice(2);
const executablePath = process.env.GRISTMILL_CHROMIUM || "/usr/bin/chromium";
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const page = await browser.newPage();
await page.goto(link);
const button = page.getByRole("button", { name: /^Log in as / });
// The button ignores a mouse that has just come.
await button.hover();
await page.waitForTimeout(1_500);
await button.click();
await page.getByRole("link", { name }).first().waitFor({ timeout: 30_000 });
await browser.close();
