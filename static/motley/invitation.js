// The secret of an invitation is the fragment of its link, which browsers send to nobody: the form sends it.
const form = document.getElementById("invitation");
const secret = location.hash.slice(1);
if (form && secret) {
  form.elements.code.value = secret;
  history.replaceState(null, "", location.pathname);
  form.submit();
}
