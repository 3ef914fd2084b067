// A classic script of exports. Browsers load no modules from files, so it says how to serve them.

if (location.protocol === 'file:') {
  addEventListener('DOMContentLoaded', () => {
    const folder = decodeURIComponent(location.pathname).replace(/\/[^/]*$/, '');
    const paragraph = document.createElement('p'), command = document.createElement('code');
    paragraph.textContent = 'Browsers do not run this page from a file. Serve its folder, and open the address ' +
      'that this command prints:';
    command.textContent = `python3 -m http.server --bind 127.0.0.1 --directory '${folder.replaceAll("'", "'\\''")}'`;
    document.getElementById('main').replaceChildren(paragraph, command);
  });
}
